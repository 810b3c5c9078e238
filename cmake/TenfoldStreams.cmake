# The imported targets tenfold_zlib and tenfold_zstd, and TENFOLD_ZLIB_FOUND and TENFOLD_ZSTD_FOUND.
# Shared by the build and by the installed package, as TenfoldLibdeflate.cmake.
foreach(tenfold_stream zlib zstd)
  string(TOUPPER ${tenfold_stream} tenfold_upper)
  find_path(TENFOLD_${tenfold_upper}_DIR ${tenfold_stream}.h)
  if(tenfold_stream STREQUAL "zlib")
    # Debian's libz.a is not position independent, which the Python extension must be.
    find_library(TENFOLD_${tenfold_upper}_LIBRARY NAMES z)
  else()
    find_library(TENFOLD_${tenfold_upper}_LIBRARY NAMES libzstd.a zstd_static zstd)
  endif()
  mark_as_advanced(TENFOLD_${tenfold_upper}_DIR TENFOLD_${tenfold_upper}_LIBRARY)
  set(TENFOLD_${tenfold_upper}_FOUND FALSE)
  if(TENFOLD_${tenfold_upper}_DIR AND TENFOLD_${tenfold_upper}_LIBRARY)
    set(TENFOLD_${tenfold_upper}_FOUND TRUE)
  endif()
  if(TENFOLD_${tenfold_upper}_FOUND AND NOT TARGET tenfold_${tenfold_stream})
    add_library(tenfold_${tenfold_stream} UNKNOWN IMPORTED GLOBAL)
    set_target_properties(tenfold_${tenfold_stream} PROPERTIES
      IMPORTED_LOCATION ${TENFOLD_${tenfold_upper}_LIBRARY}
      INTERFACE_INCLUDE_DIRECTORIES ${TENFOLD_${tenfold_upper}_DIR})
  endif()
endforeach()

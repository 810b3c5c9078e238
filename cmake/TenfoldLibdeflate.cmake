# The imported target tenfold_libdeflate, and TENFOLD_LIBDEFLATE_FOUND. Shared by the build and by
# the installed package. Debian's libdeflate-dev has no CMake files of its own.
find_path(TENFOLD_LIBDEFLATE_DIR libdeflate.h)
find_library(TENFOLD_LIBDEFLATE_LIBRARY NAMES libdeflate.a deflatestatic deflate)
mark_as_advanced(TENFOLD_LIBDEFLATE_DIR TENFOLD_LIBDEFLATE_LIBRARY)
set(TENFOLD_LIBDEFLATE_FOUND FALSE)
if(TENFOLD_LIBDEFLATE_DIR AND TENFOLD_LIBDEFLATE_LIBRARY)
  set(TENFOLD_LIBDEFLATE_FOUND TRUE)
  if(NOT TARGET tenfold_libdeflate)
    add_library(tenfold_libdeflate UNKNOWN IMPORTED GLOBAL)
    set_target_properties(tenfold_libdeflate PROPERTIES
      IMPORTED_LOCATION ${TENFOLD_LIBDEFLATE_LIBRARY}
      INTERFACE_INCLUDE_DIRECTORIES ${TENFOLD_LIBDEFLATE_DIR})
  endif()
endif()

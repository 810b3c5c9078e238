# The imported targets tenfold_zlib, tenfold_zstd, tenfold_bzip2 and tenfold_xz, and the variables
# TENFOLD_ZLIB_FOUND, ... Like TenfoldLibdeflate.cmake, used by the build and the installed package.

# tenfold_stream(name header library...): finds the header and a library by one of these names.
function(tenfold_stream name header)
  string(TOUPPER ${name} upper)
  find_path(TENFOLD_${upper}_DIR ${header})
  find_library(TENFOLD_${upper}_LIBRARY NAMES ${ARGN})
  mark_as_advanced(TENFOLD_${upper}_DIR TENFOLD_${upper}_LIBRARY)
  set(TENFOLD_${upper}_FOUND FALSE PARENT_SCOPE)
  if(NOT TENFOLD_${upper}_DIR OR NOT TENFOLD_${upper}_LIBRARY)
    return()
  endif()
  set(TENFOLD_${upper}_FOUND TRUE PARENT_SCOPE)
  if(NOT TARGET tenfold_${name})
    add_library(tenfold_${name} UNKNOWN IMPORTED GLOBAL)
    set_target_properties(tenfold_${name} PROPERTIES
      IMPORTED_LOCATION ${TENFOLD_${upper}_LIBRARY}
      INTERFACE_INCLUDE_DIRECTORIES ${TENFOLD_${upper}_DIR})
  endif()
endfunction()

# zlib and bzip2 have only the names of shared libraries, because Debian's libz.a and libbz2.a are
# not position-independent, as the Python extension requires.
tenfold_stream(zlib zlib.h z)
tenfold_stream(bzip2 bzlib.h bz2)
tenfold_stream(zstd zstd.h libzstd.a zstd_static zstd)
tenfold_stream(xz lzma.h liblzma.a lzma)

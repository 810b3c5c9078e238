# What tenfold is built with. Everything here is private: no public header needs it. All is
# header-only but libdeflate, zlib and zstd, which whoever links the installed static library needs
# as well (tenfold-config.cmake looks for them). A missing one is fatal and names the Debian package.

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

function(tenfold_require found debian_package)
  if(NOT ${found})
    message(FATAL_ERROR
      "tenfold needs ${debian_package}: `apt-get install ${debian_package}`, or `make deps` for "
      "everything at once (tools/requirements/apt-build.txt lists it)")
  endif()
endfunction()

# xxHash: XXH3, compiled into the one file that uses it (XXH_INLINE_ALL).
find_path(TENFOLD_XXHASH_DIR xxhash.h)
mark_as_advanced(TENFOLD_XXHASH_DIR)
tenfold_require(TENFOLD_XXHASH_DIR libxxhash-dev)
add_library(tenfold_xxhash INTERFACE)
target_include_directories(tenfold_xxhash SYSTEM INTERFACE ${TENFOLD_XXHASH_DIR})

# libdeflate: inflate and CRC-32, linked statically.
include(${CMAKE_CURRENT_LIST_DIR}/TenfoldLibdeflate.cmake)
tenfold_require(TENFOLD_LIBDEFLATE_FOUND libdeflate-dev)

# zlib and zstd: streams of .gz and .zst; zstd is linked statically.
include(${CMAKE_CURRENT_LIST_DIR}/TenfoldStreams.cmake)
tenfold_require(TENFOLD_STREAMS_FOUND "zlib1g-dev and libzstd-dev")

# {fmt}: text of numbers and messages (g++ 12 has no <format>).
find_package(fmt QUIET)
tenfold_require(fmt_FOUND libfmt-dev)
# Its part that is no template is compiled once, by src/base/fmt.cpp, which knows the versions 9;
# another version stays header-only, and compiles for longer.
add_library(tenfold_fmt INTERFACE)
if(fmt_VERSION VERSION_GREATER_EQUAL 9 AND fmt_VERSION VERSION_LESS 10)
  set(TENFOLD_FMT_COMPILED ON)
  target_include_directories(tenfold_fmt SYSTEM INTERFACE
    $<TARGET_PROPERTY:fmt::fmt-header-only,INTERFACE_INCLUDE_DIRECTORIES>)
else()
  set(TENFOLD_FMT_COMPILED OFF)
  target_link_libraries(tenfold_fmt INTERFACE fmt::fmt-header-only)
endif()

# CLI11: the command line.
if(TENFOLD_CLI OR TENFOLD_PYTHON)
  find_package(CLI11 QUIET)
  tenfold_require(CLI11_FOUND libcli11-dev)
endif()

if(TENFOLD_TESTS)
  find_package(GTest QUIET)
  tenfold_require(GTest_FOUND libgtest-dev)
  if(NOT TARGET GTest::gmock)
    tenfold_require(TENFOLD_GMOCK_FOUND libgmock-dev)
  endif()
endif()

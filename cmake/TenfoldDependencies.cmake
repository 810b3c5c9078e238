# The libraries that tenfold is built with. All are private: no public header needs one. xxHash, fmt
# and CLI11 are header-only; libdeflate, zlib, zstd, bzip2 and xz (liblzma) are linked.
#
# TENFOLD_DEPS, a CMake option or an environment variable, selects where they come from. The default
# is "auto" for wheels, otherwise "system".
#   system   installed packages; CMake stops if one is missing and names the packages
#   bundled  pinned sources (TenfoldBundled.cmake), compiled into the library: needs no root
#   auto     installed packages; pinned sources for those that are missing
set(tenfold_deps_default system)
if(TENFOLD_WHEEL)
  set(tenfold_deps_default auto)
endif()
if(NOT "$ENV{TENFOLD_DEPS}" STREQUAL "")
  set(tenfold_deps_default $ENV{TENFOLD_DEPS})
endif()
set(TENFOLD_DEPS ${tenfold_deps_default} CACHE STRING
  "Where libraries come from: auto, system or bundled")
set_property(CACHE TENFOLD_DEPS PROPERTY STRINGS auto system bundled)
if(NOT TENFOLD_DEPS MATCHES "^(auto|system|bundled)$")
  message(FATAL_ERROR "TENFOLD_DEPS must be auto, system or bundled, got ${TENFOLD_DEPS}")
endif()

# tenfold_stop(names debian fedora conda remedy): stops with the names of the missing packages.
function(tenfold_stop names debian fedora conda remedy)
  message(FATAL_ERROR "tenfold was not configured: not found: ${names}\n"
    "  Debian, Ubuntu:  ${debian}\n"
    "  Fedora, RHEL:    ${fedora}\n"
    "  conda:           conda install -c conda-forge ${conda}\n"
    "${remedy}")
endfunction()

include(${CMAKE_CURRENT_LIST_DIR}/TenfoldBundled.cmake)
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

# The libraries whose pinned sources are used, and the packages that are missing.
set(TENFOLD_BUNDLED "")
set(tenfold_missing "")

# tenfold_dependency(name found debian fedora conda): marks a library that was not found as bundled
# or, if only installed packages are allowed, as missing. `found` is false for TENFOLD_DEPS=bundled.
macro(tenfold_dependency name found debian fedora conda)
  if(NOT ${found})
    if(TENFOLD_DEPS STREQUAL "system")
      list(APPEND tenfold_missing "${name}|${debian}|${fedora}|${conda}")
    else()
      list(APPEND TENFOLD_BUNDLED ${name})
    endif()
  endif()
endmacro()

set(TENFOLD_CLI11_FOUND FALSE)
if(TENFOLD_DEPS STREQUAL "bundled")
  foreach(tenfold_name XXHASH LIBDEFLATE ZLIB ZSTD BZIP2 XZ FMT)
    set(TENFOLD_${tenfold_name}_FOUND FALSE)
  endforeach()
else()
  find_path(TENFOLD_XXHASH_DIR xxhash.h)
  mark_as_advanced(TENFOLD_XXHASH_DIR)
  set(TENFOLD_XXHASH_FOUND ${TENFOLD_XXHASH_DIR})
  include(${CMAKE_CURRENT_LIST_DIR}/TenfoldLibdeflate.cmake)
  include(${CMAKE_CURRENT_LIST_DIR}/TenfoldStreams.cmake)
  find_package(fmt 9 QUIET)
  set(TENFOLD_FMT_FOUND ${fmt_FOUND})
  if(TENFOLD_CLI OR TENFOLD_PYTHON)
    find_package(CLI11 QUIET)
    set(TENFOLD_CLI11_FOUND ${CLI11_FOUND})
  endif()
endif()

tenfold_dependency(xxhash TENFOLD_XXHASH_FOUND libxxhash-dev xxhash-devel xxhash)
tenfold_dependency(libdeflate TENFOLD_LIBDEFLATE_FOUND libdeflate-dev libdeflate-devel libdeflate)
tenfold_dependency(zlib TENFOLD_ZLIB_FOUND zlib1g-dev zlib-devel zlib)
tenfold_dependency(zstd TENFOLD_ZSTD_FOUND libzstd-dev libzstd-devel zstd)
tenfold_dependency(bzip2 TENFOLD_BZIP2_FOUND libbz2-dev bzip2-devel bzip2)
tenfold_dependency(xz TENFOLD_XZ_FOUND liblzma-dev xz-devel liblzma-devel)
tenfold_dependency(fmt TENFOLD_FMT_FOUND libfmt-dev fmt-devel fmt)
if(TENFOLD_CLI OR TENFOLD_PYTHON)
  tenfold_dependency(cli11 TENFOLD_CLI11_FOUND libcli11-dev cli11-devel cli11)
endif()
if(TENFOLD_TESTS)
  if("zlib" IN_LIST TENFOLD_BUNDLED OR "zstd" IN_LIST TENFOLD_BUNDLED
      OR "xz" IN_LIST TENFOLD_BUNDLED)
    message(FATAL_ERROR
      "the tests compress with zlib, zstd and xz, and their bundled sources can only "
      "decompress: set TENFOLD_DEPS=system or TENFOLD_TESTS=OFF")
  endif()
  find_package(GTest QUIET)
  set(TENFOLD_GMOCK_FOUND FALSE)
  if(GTest_FOUND AND TARGET GTest::gmock)
    set(TENFOLD_GMOCK_FOUND TRUE)
  elseif(NOT TENFOLD_DEPS STREQUAL "system")
    message(FATAL_ERROR "the tests need GoogleTest, which is never bundled: install it (Debian: "
      "libgmock-dev, Fedora: gmock-devel, conda: gmock) or set TENFOLD_TESTS=OFF")
  endif()
  if(NOT TENFOLD_GMOCK_FOUND)
    list(APPEND tenfold_missing "GoogleTest|libgtest-dev libgmock-dev|gmock-devel|gmock")
  endif()
endif()

if(tenfold_missing)
  set(tenfold_names "")
  set(tenfold_debian "")
  set(tenfold_fedora "")
  set(tenfold_conda "")
  foreach(tenfold_entry IN LISTS tenfold_missing)
    string(REPLACE "|" ";" tenfold_entry "${tenfold_entry}")
    list(POP_FRONT tenfold_entry tenfold_name tenfold_deb tenfold_rpm tenfold_con)
    list(APPEND tenfold_names ${tenfold_name})
    string(APPEND tenfold_debian " ${tenfold_deb}")
    string(APPEND tenfold_fedora " ${tenfold_rpm}")
    list(APPEND tenfold_conda ${tenfold_con})
  endforeach()
  list(JOIN tenfold_names ", " tenfold_names)
  list(JOIN tenfold_conda " " tenfold_conda)
  tenfold_stop("${tenfold_names}" "apt-get install${tenfold_debian}" "dnf install${tenfold_fedora}"
    "${tenfold_conda}" "or let CMake fetch and build pinned sources: -D TENFOLD_DEPS=bundled")
endif()

# xxHash: XXH3, compiled into the one file that uses it (XXH_INLINE_ALL).
add_library(tenfold_xxhash INTERFACE)
if("xxhash" IN_LIST TENFOLD_BUNDLED)
  tenfold_fetch(xxhash TENFOLD_XXHASH_DIR)
endif()
target_include_directories(tenfold_xxhash SYSTEM INTERFACE ${TENFOLD_XXHASH_DIR})

# libdeflate is used for inflate and CRC-32; the others for streams of .gz, .zst, .bz2 and .xz.
foreach(tenfold_name libdeflate zlib zstd bzip2 xz)
  if(tenfold_name IN_LIST TENFOLD_BUNDLED)
    cmake_language(CALL tenfold_bundle_${tenfold_name})
  endif()
endforeach()

# {fmt} formats numbers and messages (g++ 12 has no <format>). Its code that is not templates is
# compiled once: for the pinned version in its src/format.cc, for installed versions before 10 in
# src/base/fmt.cpp. Later installed versions are used header-only, which takes longer to compile.
add_library(tenfold_fmt INTERFACE)
set(TENFOLD_FMT_SOURCE "")
if("fmt" IN_LIST TENFOLD_BUNDLED)
  tenfold_fetch(fmt tenfold_fmt_dir)
  set(tenfold_fmt_include ${tenfold_fmt_dir}/include)
  set(TENFOLD_FMT_SOURCE ${tenfold_fmt_dir}/src/format.cc)
else()
  set(tenfold_fmt_include $<TARGET_PROPERTY:fmt::fmt-header-only,INTERFACE_INCLUDE_DIRECTORIES>)
  if(fmt_VERSION VERSION_LESS 10)
    set(TENFOLD_FMT_SOURCE ${PROJECT_SOURCE_DIR}/src/base/fmt.cpp)
  endif()
endif()
target_include_directories(tenfold_fmt SYSTEM INTERFACE ${tenfold_fmt_include})
if(NOT TENFOLD_FMT_SOURCE)
  target_compile_definitions(tenfold_fmt INTERFACE FMT_HEADER_ONLY=1)
endif()

# CLI11 parses the command line.
if(TENFOLD_CLI OR TENFOLD_PYTHON)
  add_library(tenfold_cli11 INTERFACE)
  if("cli11" IN_LIST TENFOLD_BUNDLED)
    tenfold_fetch(cli11 tenfold_cli11_dir)
    target_include_directories(tenfold_cli11 SYSTEM INTERFACE ${tenfold_cli11_dir}/include)
  else()
    target_link_libraries(tenfold_cli11 INTERFACE CLI11::CLI11)
  endif()
endif()

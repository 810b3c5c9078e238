# What tenfold is built with. Everything here is header-only and private: it is needed to build
# tenfold and never to use it. A missing one is fatal and names the Debian package.

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

function(tenfold_require found debian_package)
  if(NOT ${found})
    message(FATAL_ERROR
      "tenfold needs ${debian_package}: `apt-get install ${debian_package}`, or `make deps` for "
      "everything at once (tools/requirements/apt-build.txt lists it)")
  endif()
endfunction()

# RapidJSON: JSON documents, with NaN, Infinity and integers of any size. It is compiled from a copy
# with two corrections that its later versions have too and the released 1.1.0 lacks:
# an operator= that assigns to a const member, which clang 19 rejects, and arithmetic on a null
# pointer in an empty stack, which UBSan reports.
find_path(TENFOLD_RAPIDJSON_DIR rapidjson/document.h)
mark_as_advanced(TENFOLD_RAPIDJSON_DIR)
tenfold_require(TENFOLD_RAPIDJSON_DIR rapidjson-dev)
set(tenfold_rapidjson_copy ${PROJECT_BINARY_DIR}/third_party)

# Writes the header with `from` replaced by `to`, touching nothing if it is written already.
function(tenfold_correct_rapidjson header from to)
  file(READ ${TENFOLD_RAPIDJSON_DIR}/rapidjson/${header} text)
  string(REPLACE "${from}" "${to}" text "${text}")
  file(CONFIGURE OUTPUT ${tenfold_rapidjson_copy}/rapidjson/${header} CONTENT "${text}" @ONLY)
endfunction()

file(COPY ${TENFOLD_RAPIDJSON_DIR}/rapidjson DESTINATION ${tenfold_rapidjson_copy}
  PATTERN document.h EXCLUDE PATTERN stack.h EXCLUDE)
tenfold_correct_rapidjson(document.h
  "GenericStringRef& operator=(const GenericStringRef& rhs) { s = rhs.s; length = rhs.length; }"
  "")
tenfold_correct_rapidjson(internal/stack.h
  "stackTop_ + sizeof(T) * count > stackEnd_"
  "static_cast<std::ptrdiff_t>(sizeof(T) * count) > stackEnd_ - stackTop_")
add_library(tenfold_rapidjson INTERFACE)
target_include_directories(tenfold_rapidjson SYSTEM INTERFACE ${tenfold_rapidjson_copy})

# xxHash: XXH3, compiled into the one file that uses it (XXH_INLINE_ALL).
find_path(TENFOLD_XXHASH_DIR xxhash.h)
mark_as_advanced(TENFOLD_XXHASH_DIR)
tenfold_require(TENFOLD_XXHASH_DIR libxxhash-dev)
add_library(tenfold_xxhash INTERFACE)
target_include_directories(tenfold_xxhash SYSTEM INTERFACE ${TENFOLD_XXHASH_DIR})

# {fmt}: text of numbers and messages (g++ 12 has no <format>).
find_package(fmt QUIET)
tenfold_require(fmt_FOUND libfmt-dev)

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

if(TENFOLD_BENCH)
  find_package(benchmark QUIET)
  tenfold_require(benchmark_FOUND libbenchmark-dev)
endif()

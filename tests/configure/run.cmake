# Configures SOURCE_DIR in folders below WORK_DIR in ways that must fail, and checks the errors of
# CMake.
file(REMOVE_RECURSE ${WORK_DIR})

# expect_error(<name> <text> <argument>...): configuring with the arguments must fail with the text.
function(expect_error name text)
  execute_process(
    COMMAND ${CMAKE_COMMAND} -S ${SOURCE_DIR} -B ${WORK_DIR}/${name} -G ${GENERATOR}
      -D CMAKE_MAKE_PROGRAM=${MAKE_PROGRAM}
      -D CMAKE_CXX_COMPILER=${CXX_COMPILER}
      -D TENFOLD_TESTS=OFF
      ${ARGN}
    RESULT_VARIABLE status OUTPUT_QUIET ERROR_VARIABLE message)
  # CMake wraps the lines of messages.
  string(REGEX REPLACE "[ \n]+" " " message "${message}")
  string(FIND "${message}" "${text}" found)
  if(status EQUAL 0 OR found EQUAL -1)
    message(FATAL_ERROR "${name}: expected an error with \"${text}\", found ${status}: ${message}")
  endif()
  message(STATUS "ok: ${name}")
endfunction()

set(without_zstd -D TENFOLD_ZSTD_LIBRARY=TENFOLD_ZSTD_LIBRARY-NOTFOUND
  -D CMAKE_SYSTEM_IGNORE_PATH=/ -D CMAKE_FIND_ROOT_PATH=/nowhere
  -D CMAKE_FIND_ROOT_PATH_MODE_LIBRARY=ONLY)
expect_error(missing_library "Debian, Ubuntu: apt-get install libdeflate-dev zlib1g-dev libzstd-dev libbz2-dev liblzma-dev"
  ${without_zstd})
expect_error(missing_library_fedora "dnf install libdeflate-devel zlib-devel libzstd-devel bzip2-devel xz-devel"
  ${without_zstd})
expect_error(missing_library_conda "conda install -c conda-forge libdeflate zlib zstd bzip2 liblzma-devel"
  ${without_zstd})
expect_error(macos "tenfold runs on Linux only, this system is Darwin" -D CMAKE_SYSTEM_NAME=Darwin)
expect_error(windows "tenfold runs on Linux only, this system is Windows"
  -D CMAKE_SYSTEM_NAME=Windows)
expect_error(unknown_source_of_libraries "TENFOLD_DEPS must be auto, system or bundled, got vendored"
  -D TENFOLD_DEPS=vendored)
set(ENV{TENFOLD_DEPS} vendored)
expect_error(unknown_source_in_the_environment
  "TENFOLD_DEPS must be auto, system or bundled, got vendored")
unset(ENV{TENFOLD_DEPS})
expect_error(missing_sources "has no folder xxhash"
  -D TENFOLD_DEPS=bundled -D TENFOLD_BUNDLED_SOURCES=${WORK_DIR})
expect_error(tests_with_bundled_libraries "the tests compress with zlib, zstd and xz"
  -D TENFOLD_TESTS=ON -D TENFOLD_DEPS=bundled)

set(without_headers -D TENFOLD_PYTHON=ON -D Python_INCLUDE_DIR=/nowhere)
expect_error(missing_python_headers "not found: Python 3.10 or newer with its headers"
  ${without_headers})
expect_error(missing_python_headers_debian "apt-get install python3-dev" ${without_headers})
expect_error(missing_python_headers_fedora "dnf install python3-devel" ${without_headers})
expect_error(missing_python_headers_conda "conda install -c conda-forge python" ${without_headers})

file(WRITE ${WORK_DIR}/without_nanobind/nanobind.py "raise ModuleNotFoundError\n")
set(ENV{PYTHONPATH} ${WORK_DIR}/without_nanobind)
expect_error(missing_nanobind "(found: none) Debian, Ubuntu: pip install 'nanobind>=3.1'"
  -D TENFOLD_PYTHON=ON)

# Installs the build tree BUILD_DIR below WORK_DIR, moves the installed files, builds the consumer
# against them with CMake and with pkg-config, and runs it. The library is static, or shared if
# SHARED; then PYTHON runs the check of its exported names.
file(REMOVE_RECURSE ${WORK_DIR})

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
endfunction()

set(prefix ${WORK_DIR}/moved)
run(${CMAKE_COMMAND} --install ${BUILD_DIR} --config ${CONFIG} --component cpp
  --prefix ${WORK_DIR}/prefix)
file(RENAME ${WORK_DIR}/prefix ${prefix})

run(${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR} -B ${WORK_DIR}/build -G ${GENERATOR}
  -D CMAKE_MAKE_PROGRAM=${MAKE_PROGRAM}
  -D CMAKE_CXX_COMPILER=${CXX_COMPILER}
  -D CMAKE_BUILD_TYPE=${CONFIG}
  -D CMAKE_PREFIX_PATH=${prefix})
run(${CMAKE_COMMAND} --build ${WORK_DIR}/build --config ${CONFIG})
run(${WORK_DIR}/build/consumer)

# The same program, built with pkg-config only.
find_program(PKG_CONFIG pkg-config REQUIRED)
file(GLOB_RECURSE pc ${prefix}/tenfold.pc)
cmake_path(GET pc PARENT_PATH folder)
cmake_path(GET folder PARENT_PATH libraries)
set(ENV{PKG_CONFIG_PATH} ${folder})
set(static --static)
if(SHARED)
  set(static)
  set(ENV{LD_LIBRARY_PATH} ${libraries})
endif()
execute_process(COMMAND ${PKG_CONFIG} ${static} --cflags --libs tenfold
  OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(flags UNIX_COMMAND "${flags}")
run(${CXX_COMPILER} -std=c++20 ${CMAKE_CURRENT_LIST_DIR}/main.cpp ${flags}
  -o ${WORK_DIR}/by_pkg_config)
run(${WORK_DIR}/by_pkg_config)

# The licence and the notices of the linked libraries are installed as well.
file(GLOB_RECURSE notices RELATIVE ${prefix}
  ${prefix}/*/LICENSE ${prefix}/*/NOTICE ${prefix}/*/zstd.txt)
list(LENGTH notices count)
if(NOT count EQUAL 3)
  message(FATAL_ERROR "expected LICENSE, NOTICE and licenses/zstd.txt, found ${notices}")
endif()

if(SHARED)
  # A user of the shared library needs no other library, and need not define TENFOLD_SHARED.
  file(GLOB_RECURSE needs ${prefix}/*/TenfoldStreams.cmake ${prefix}/*/libtenfold.a)
  if(needs)
    message(FATAL_ERROR "the package of the shared library has ${needs}")
  endif()
  execute_process(COMMAND ${PKG_CONFIG} --print-requires-private tenfold
    OUTPUT_VARIABLE needs COMMAND_ERROR_IS_FATAL ANY)
  if(needs)
    message(FATAL_ERROR "tenfold.pc of the shared library requires ${needs}")
  endif()
  run(${CXX_COMPILER} -std=c++20 -fvisibility=hidden -I${prefix}/include
    ${CMAKE_CURRENT_LIST_DIR}/main.cpp -L${libraries} -ltenfold -o ${WORK_DIR}/by_hand)
  run(${WORK_DIR}/by_hand)
  run(${PYTHON} ${CMAKE_CURRENT_LIST_DIR}/check_exports.py
    ${libraries}/libtenfold.so ${prefix}/include/tenfold)
  # The command-line program finds the shared library without LD_LIBRARY_PATH.
  unset(ENV{LD_LIBRARY_PATH})
  if(EXISTS ${prefix}/bin/tenfold)
    run(${prefix}/bin/tenfold --version)
  endif()
endif()

# Installs the build tree BUILD_DIR below WORK_DIR, builds the consumer against it and runs it.
file(REMOVE_RECURSE ${WORK_DIR})

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD_DIR} --config ${CONFIG} --component cpp
  --prefix ${WORK_DIR}/prefix)
file(GLOB_RECURSE license ${WORK_DIR}/prefix/*/LICENSE)
if(NOT license)
  message(FATAL_ERROR "the installed package has no LICENSE")
endif()
run(${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR} -B ${WORK_DIR}/build -G ${GENERATOR}
  -D CMAKE_MAKE_PROGRAM=${MAKE_PROGRAM}
  -D CMAKE_CXX_COMPILER=${CXX_COMPILER}
  -D CMAKE_BUILD_TYPE=${CONFIG}
  -D CMAKE_PREFIX_PATH=${WORK_DIR}/prefix)
run(${CMAKE_COMMAND} --build ${WORK_DIR}/build --config ${CONFIG})
run(${WORK_DIR}/build/consumer)

# The same program by pkg-config alone, out of a tree that was moved.
find_program(PKG_CONFIG pkg-config REQUIRED)
file(RENAME ${WORK_DIR}/prefix ${WORK_DIR}/moved)
file(GLOB_RECURSE pc ${WORK_DIR}/moved/tenfold.pc)
cmake_path(GET pc PARENT_PATH folder)
set(ENV{PKG_CONFIG_PATH} ${folder})
execute_process(COMMAND ${PKG_CONFIG} --static --cflags --libs tenfold
  OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(flags UNIX_COMMAND "${flags}")
run(${CXX_COMPILER} -std=c++20 ${CMAKE_CURRENT_LIST_DIR}/main.cpp ${flags}
  -o ${WORK_DIR}/by_pkg_config)
run(${WORK_DIR}/by_pkg_config)

# Its licence and the notices of what is linked in come along.
file(GLOB_RECURSE notices RELATIVE ${WORK_DIR}/moved
  ${WORK_DIR}/moved/*/LICENSE ${WORK_DIR}/moved/*/NOTICE ${WORK_DIR}/moved/*/zstd.txt)
list(LENGTH notices count)
if(NOT count EQUAL 3)
  message(FATAL_ERROR "expected LICENSE, NOTICE and licenses/zstd.txt, found ${notices}")
endif()

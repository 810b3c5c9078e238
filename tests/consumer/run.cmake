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

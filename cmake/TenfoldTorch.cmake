# tenfold_find_torch(<found>): finds LibTorch for the tests of include/tenfold/torch.hpp. Sets
# <found>, and <found>_REASON if it is false. Programs that use tenfold find LibTorch themselves.
#
# TENFOLD_TORCH:
#   AUTO  LibTorch that CMake finds (CMAKE_PREFIX_PATH, Torch_DIR), or the Python interpreter's
#         torch if that is a CPU build: a CUDA build stops CMake if there is no CUDA toolkit
#   ON    the same, but also a CUDA build of the interpreter's torch; without LibTorch, an error
#   OFF   none
set(TENFOLD_TORCH AUTO CACHE STRING "Test the LibTorch adapter: AUTO, ON or OFF")
set_property(CACHE TENFOLD_TORCH PROPERTY STRINGS AUTO ON OFF)

# Sets `result` to the folder of the interpreter's torch package, without importing it; empty if it
# is not installed.
function(tenfold_python_torch_prefix result)
  execute_process(
    COMMAND ${Python3_EXECUTABLE} -c [[
import importlib.util
spec = importlib.util.find_spec("torch")
print(spec.submodule_search_locations[0] if spec else "")]]
    OUTPUT_VARIABLE folder OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  set(${result} "${folder}" PARENT_SCOPE)
endfunction()

# A function, so that variables that Torch's package sets are local. Its targets are visible in the
# caller's directory.
function(tenfold_find_torch found)
  set(${found} FALSE PARENT_SCOPE)
  string(TOUPPER "${TENFOLD_TORCH}" wanted)
  if(wanted STREQUAL "OFF")
    set(${found}_REASON "TENFOLD_TORCH is OFF" PARENT_SCOPE)
    return()
  endif()
  tenfold_python_torch_prefix(folder)
  if(folder)
    set(cuda "")
    if(EXISTS ${folder}/version.py)
      file(STRINGS ${folder}/version.py cuda REGEX "^cuda.*= *['\"]")
    endif()
    if(NOT cuda OR wanted STREQUAL "ON")
      list(APPEND CMAKE_PREFIX_PATH ${folder}/share/cmake)
    endif()
  endif()
  find_package(Torch QUIET)
  if(NOT Torch_FOUND)
    if(wanted STREQUAL "ON")
      message(FATAL_ERROR "TENFOLD_TORCH is ON and LibTorch was not found: set Torch_DIR, or install "
        "torch for ${Python3_EXECUTABLE}")
    endif()
    set(${found}_REASON "${Python3_EXECUTABLE} has no torch without CUDA" PARENT_SCOPE)
    return()
  endif()
  if(NOT TARGET tenfold_torch)
    add_library(tenfold_torch INTERFACE)
    separate_arguments(flags UNIX_COMMAND "${TORCH_CXX_FLAGS}")
    target_compile_options(tenfold_torch INTERFACE ${flags})
    target_link_libraries(tenfold_torch INTERFACE ${TORCH_LIBRARIES})
  endif()
  set(${found} TRUE PARENT_SCOPE)
endfunction()

# tenfold_target_defaults(target): the warnings and the visibility of this project's own code.
function(tenfold_target_defaults target)
  set_target_properties(${target} PROPERTIES
    CXX_EXTENSIONS OFF
    CXX_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON)
  target_compile_features(${target} PRIVATE cxx_std_20)
  target_compile_options(${target} PRIVATE
    # Lets ccache keep what is compiled with a precompiled header.
    $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>
    -Wall -Wextra -Wconversion -Wsign-conversion -Wshadow
    $<$<BOOL:${TENFOLD_WERROR}>:-Werror>
    # g++ 12 sees an overlap in `"literal" + std::string` that is not there (GCC bug 105651).
    $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>)
endfunction()

# tenfold_unity(target [file...]): compiles several files of the target as one, but the files named,
# whose names that others have as well are theirs on purpose.
function(tenfold_unity target)
  if(NOT TENFOLD_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  # g++ takes an anonymous namespace for another file's where it is not the main file's; and g++ 12
  # sees a vector that grows as an array without items (GCC bug 105329).
  target_compile_options(${target} PRIVATE
    $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>
    $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-array-bounds>)
  foreach(file IN LISTS ARGN)
    set_source_files_properties(${CMAKE_CURRENT_SOURCE_DIR}/${file}
      TARGET_DIRECTORY ${target} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endforeach()
endfunction()

# TENFOLD_SANITIZED: the build is instrumented, so nothing outside it can link against it.
set(TENFOLD_SANITIZED OFF)
if(CMAKE_CXX_FLAGS MATCHES "-fsanitize")
  set(TENFOLD_SANITIZED ON)
endif()

# tenfold_target_defaults(target): the warnings and the visibility of this project's own code.
function(tenfold_target_defaults target)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
  if(NOT TENFOLD_EXPORT_ALL)
    set_target_properties(${target} PROPERTIES
      CXX_VISIBILITY_PRESET hidden
      VISIBILITY_INLINES_HIDDEN ON)
  endif()
  target_compile_features(${target} PRIVATE cxx_std_20)
  target_compile_options(${target} PRIVATE
    # Lets ccache keep what is compiled with a precompiled header.
    $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>
    -Wall -Wextra -Wconversion -Wsign-conversion -Wshadow
    $<$<BOOL:${TENFOLD_WERROR}>:-Werror>
    # clang sees std::stable_sort of libstdc++ 12 call a function that is deprecated.
    $<$<CXX_COMPILER_ID:Clang>:-Wno-deprecated-declarations>
    # g++ 12 sees an overlap in `"literal" + std::string` that is not there (GCC bug 105651).
    $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>)
endfunction()

# tenfold_unity(target [file...]): compiles several files of a folder as one, but the files named,
# whose names that others have as well are theirs on purpose. To be called when the target has all of
# its sources: a new file then changes what is compiled with what in its own folder alone.
# TENFOLD_UNITY_FILES: how many (8).
function(tenfold_unity target)
  if(NOT TENFOLD_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  if(NOT DEFINED TENFOLD_UNITY_FILES)
    set(TENFOLD_UNITY_FILES 8)
  endif()
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    cmake_path(ABSOLUTE_PATH source NORMALIZE)
    cmake_path(GET source PARENT_PATH folder)
    cmake_path(RELATIVE_PATH folder BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
    string(MAKE_C_IDENTIFIER ${folder} folder)
    if(NOT source MATCHES "[.]cpp$")
      continue()
    endif()
    if(NOT DEFINED count_${folder})
      set(count_${folder} 0)
    endif()
    math(EXPR number "${count_${folder}} / ${TENFOLD_UNITY_FILES}")
    math(EXPR count_${folder} "${count_${folder}} + 1")
    set_source_files_properties(${source}
      TARGET_DIRECTORY ${target} PROPERTIES UNITY_GROUP ${folder}_${number})
  endforeach()
  # g++ takes an anonymous namespace for another file's where it is not the main file's; and g++ 12
  # sees a vector that grows as an array without items (GCC bug 105329).
  target_compile_options(${target} PRIVATE
    $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>
    $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-array-bounds>)
  foreach(file IN LISTS ARGN)
    cmake_path(ABSOLUTE_PATH file NORMALIZE)
    set_source_files_properties(${file}
      TARGET_DIRECTORY ${target} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endforeach()
endfunction()

# TENFOLD_SANITIZED: the build is instrumented, so nothing outside it can link against it.
set(TENFOLD_SANITIZED OFF)
if(CMAKE_CXX_FLAGS MATCHES "-fsanitize")
  set(TENFOLD_SANITIZED ON)
endif()

# tenfold_target_defaults(target): sets the C++ standard, warnings and visibility of own targets.
function(tenfold_target_defaults target)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
  if(NOT TENFOLD_EXPORT_ALL)
    set_target_properties(${target} PROPERTIES
      CXX_VISIBILITY_PRESET hidden
      VISIBILITY_INLINES_HIDDEN ON)
  endif()
  target_compile_features(${target} PRIVATE cxx_std_20)
  target_compile_options(${target} PRIVATE
    # ccache needs this to cache objects that are compiled with a precompiled header.
    $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>
    -Wall -Wextra -Wconversion -Wsign-conversion -Wshadow
    $<$<BOOL:${TENFOLD_WERROR}>:-Werror>
    # std::stable_sort of libstdc++ 12 calls a deprecated function, about which clang warns.
    $<$<CXX_COMPILER_ID:Clang>:-Wno-deprecated-declarations>
    # g++ 12 warns falsely of an overlap in `"literal" + std::string` (GCC bug 105651).
    $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>)
endfunction()

# tenfold_unity(target [file...]): compiles up to TENFOLD_UNITY_FILES (default: 8) source files of a
# folder as one, if TENFOLD_UNITY is on. The given files are compiled separately, because they
# define names that other files define, too. Call it after all sources of the target were added.
# Files are grouped by folder, so a new file changes the groups of its own folder only.
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
  # g++ warns of types that use an anonymous namespace of an included file, such as a source file of
  # a group. g++ 12 warns falsely of array bounds in a growing vector (GCC bug 105329).
  target_compile_options(${target} PRIVATE
    $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>
    $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-array-bounds>)
  foreach(file IN LISTS ARGN)
    cmake_path(ABSOLUTE_PATH file NORMALIZE)
    set_source_files_properties(${file}
      TARGET_DIRECTORY ${target} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endforeach()
endfunction()

# TENFOLD_SANITIZED: the build uses a sanitizer, so programs outside of it cannot link its library.
set(TENFOLD_SANITIZED OFF)
if(CMAKE_CXX_FLAGS MATCHES "-fsanitize")
  set(TENFOLD_SANITIZED ON)
endif()

# tenfold_target_defaults(target): the warnings and the visibility of this project's own code.
function(tenfold_target_defaults target)
  set_target_properties(${target} PROPERTIES
    CXX_EXTENSIONS OFF
    CXX_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON)
  target_compile_features(${target} PRIVATE cxx_std_20)
  target_compile_options(${target} PRIVATE
    -Wall -Wextra -Wconversion -Wsign-conversion -Wshadow
    $<$<BOOL:${TENFOLD_WERROR}>:-Werror>
    # g++ 12 sees an overlap in `"literal" + std::string` that is not there (GCC bug 105651).
    $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>)
endfunction()

# TENFOLD_SANITIZED: the build is instrumented, so nothing outside it can link against it.
set(TENFOLD_SANITIZED OFF)
if(CMAKE_CXX_FLAGS MATCHES "-fsanitize")
  set(TENFOLD_SANITIZED ON)
endif()

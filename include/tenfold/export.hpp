#pragma once

#include <tenfold/cxx20.hpp>

// TENFOLD_API and TENFOLD_LOCAL set the symbol visibility of the shared library, whose CMake target
// and pkg-config file define TENFOLD_SHARED. With the static library both macros are empty, so that
// a plugin that links the static library does not export the library's symbols.
//
// TENFOLD_API marks every function of a public header that is defined in the library, and every
// class with such members. TENFOLD_LOCAL marks a private class nested in such a class, which would
// otherwise be exported along with it.
#if defined(TENFOLD_SHARED)
#define TENFOLD_API [[gnu::visibility("default")]]
#define TENFOLD_LOCAL [[gnu::visibility("hidden")]]
#else
#define TENFOLD_API
#define TENFOLD_LOCAL
#endif

/// Marks member functions and parameters: the result must not outlive the object or the argument.
/// clang warns of results that do, as far as it detects them.
#if defined(__clang__)
#define TENFOLD_LIFETIMEBOUND [[clang::lifetimebound]]
#else
#define TENFOLD_LIFETIMEBOUND
#endif

#pragma once

// The first header that every other one includes (by export.hpp), so that a compiler for an older
// standard reports this before anything else.
#if __cplusplus < 202002L
#error "tenfold needs C++20: compile with -std=c++20 or later"
#endif

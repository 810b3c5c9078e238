#pragma once

// Included by every header that includes no other one of tenfold, so that a compiler for an older
// standard says this before anything else.
#if __cplusplus < 202002L
#error "tenfold needs C++20: compile with -std=c++20 or later"
#endif

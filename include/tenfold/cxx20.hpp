#pragma once

// Every other header of tenfold includes this one, most of them by export.hpp, so that a compiler
// for an older standard names the reason.
#if __cplusplus < 202002L
#error "tenfold needs C++20: compile with -std=c++20 or later"
#endif

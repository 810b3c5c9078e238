#pragma once

// Every other header of tenfold includes this one through export.hpp, so that a compiler that is
// set to an older standard prints the message below.
#if __cplusplus < 202002L
#error "tenfold needs C++20: compile with -std=c++20 or later"
#endif

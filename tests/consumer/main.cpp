#include <tenfold/tenfold.hpp>

#include <iostream>

int main() { std::cout << "tenfold " << tenfold::version() << '\n'; }

// The versions of the headers and of the library.
#include <tenfold/version.hpp>

#include <iostream>

int main() {
  std::cout << tenfold::version() << '\n';
  return tenfold::version() == TENFOLD_VERSION_STRING ? 0 : 1;
}

// Warnings go to stderr, or to a handler of the program.
#include <tenfold/warnings.hpp>

#include <iostream>

int main() {
  const tenfold::WarningHandler before = tenfold::set_warning_handler(
      [](const std::string& message) { std::clog << "data: " << message << '\n'; });
  // ... what the library warns of now has that prefix.
  tenfold::set_warning_handler(before);
  return before != nullptr ? 0 : 1;
}

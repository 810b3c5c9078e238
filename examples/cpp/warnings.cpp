// Warnings go to stderr, or to a handler of the program.
#include <tenfold/warnings.hpp>

#include <iostream>

int main() {
  const tenfold::WarningHandler before = tenfold::set_warning_handler(
      [](const std::string& message) { std::clog << "data: " << message << '\n'; });
  // Until the next call, warnings of the library go to this handler.
  tenfold::set_warning_handler(before);
  return before != nullptr ? 0 : 1;
}

// All exceptions that the library throws itself, except std::bad_alloc, have the class
// tenfold::Error. Its members give the error code, the file, and the parts of the message.
#include <tenfold/error.hpp>
#include <tenfold/io.hpp>

#include <iostream>

int main() {
  try {
    tenfold::open("nowhere.safetensors");
  } catch (const tenfold::Error& error) {
    std::cerr << error.what() << '\n';
    return error.code() == tenfold::ErrorCode::file_not_found ? 0 : 1;
  }
  return 1;
}

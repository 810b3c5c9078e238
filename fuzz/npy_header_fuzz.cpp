// Arbitrary bytes as the header of a NumPy file. They are refused with an Error, or the header
// survives a round trip, except if it has a dtype that tenfold never writes.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include <tenfold/error.hpp>

#include "codecs/npy_header.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tenfold;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  codecs::NpyHeader header;
  try {
    header = codecs::parse_npy_header(input, "input");
  } catch (const Error& error) {
    if (error.code() != ErrorCode::corrupt && error.code() != ErrorCode::unsupported) std::abort();
    return 0;
  }
  // tenfold never writes a dtype whose name contains a single quote, or a structured dtype in the
  // form of Python 2.
  if (header.is_structured || header.descr.find('\'') != std::string::npos) return 0;
  codecs::NpyHeader again = codecs::parse_npy_header(codecs::write_npy_header(header), "written");
  if (again.data_offset_bytes % 64 != 0) std::abort();
  again.data_offset_bytes = header.data_offset_bytes;
  if (again != header) std::abort();
  return 0;
}

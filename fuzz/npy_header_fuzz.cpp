// Any bytes as the header of a NumPy file: refused with an Error, or what they say survives writing
// and reading again.

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
  // A name with a single quote in it, or the fields of a structured dtype as Python 2 wrote them,
  // are no names of NumPy's: nobody writes them.
  if (header.is_structured || header.descr.find('\'') != std::string::npos) return 0;
  codecs::NpyHeader again = codecs::parse_npy_header(codecs::write_npy_header(header), "written");
  if (again.data_offset_bytes % 64 != 0) std::abort();
  again.data_offset_bytes = header.data_offset_bytes;
  if (again != header) std::abort();
  return 0;
}

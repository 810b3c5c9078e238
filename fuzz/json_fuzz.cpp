// Arbitrary bytes as JSON. They are refused as corrupt, or the value survives a round trip in every
// JsonStyle.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include <tenfold/error.hpp>
#include <tenfold/value.hpp>

#include "core/value/value_json.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  tenfold::Value value;
  try {
    value = tenfold::from_json(text, "input");
  } catch (const tenfold::Error& error) {
    if (error.code() != tenfold::ErrorCode::corrupt) std::abort();
    return 0;
  }
  using enum tenfold::codecs::JsonStyle;
  for (const auto style : {python, python_compact, utf8_compact}) {
    if (tenfold::from_json(tenfold::to_json(value, style), "again") != value) std::abort();
  }
  return 0;
}

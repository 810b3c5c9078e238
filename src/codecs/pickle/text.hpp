#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tenfold::codecs {

// How pickles spell values. Nothing here throws: nothing is told by nullopt.

/// An integer of any size: its value if int64 holds it, its decimal digits otherwise.
struct PickleInteger {
  std::optional<std::int64_t> value;
  std::string digits;
};

/// Little-endian two's complement (LONG1, LONG4); no bytes are 0.
PickleInteger pickle_integer(std::string_view bytes);
/// Decimal text (INT, LONG), with a sign or without.
std::optional<PickleInteger> pickle_decimal(std::string_view text);
/// The text of FLOAT, as Python's repr writes it.
std::optional<double> pickle_float(std::string_view text);
/// The quoted text of STRING with Python's escapes, to bytes.
std::optional<std::string> pickle_quoted(std::string_view text);
/// The text of UNICODE ("raw-unicode-escape": Latin-1 with \uXXXX and \UXXXXXXXX), to UTF-8.
std::optional<std::string> pickle_raw_unicode(std::string_view text);
/// True for UTF-8 in which surrogates may stand in three bytes each.
bool is_pickle_text(std::string_view text) noexcept;

}  // namespace tenfold::codecs

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tenfold::codecs {

// Decoders of numbers and strings in pickles. Those that return an optional return nullopt for
// invalid input; none throws an Error.

/// An integer of any size: its value if int64 holds it, its decimal digits otherwise.
struct PickleInteger {
  std::optional<std::int64_t> value;
  std::string digits;
};

/// Decodes a little-endian two's complement integer (BININT, LONG1, LONG4). An empty string is 0.
PickleInteger pickle_integer(std::string_view bytes);
/// Parses decimal digits with an optional sign (INT, LONG).
std::optional<PickleInteger> pickle_decimal(std::string_view text);
/// Parses the argument of FLOAT, as Python's repr writes it.
std::optional<double> pickle_float(std::string_view text);
/// Parses the quoted argument of STRING, with Python's escapes, to bytes.
std::optional<std::string> pickle_quoted(std::string_view text);
/// Decodes the argument of UNICODE ("raw-unicode-escape": Latin-1 with \uXXXX and \UXXXXXXXX) to
/// UTF-8, with surrogates in three bytes each.
std::optional<std::string> pickle_raw_unicode(std::string_view text);
/// True for UTF-8 in which surrogates are allowed, in three bytes each.
bool is_pickle_text(std::string_view text) noexcept;

}  // namespace tenfold::codecs

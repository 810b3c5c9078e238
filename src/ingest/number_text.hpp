#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tenfold {

/// A number as text, taken apart.
struct NumberText {
  const char* begin = nullptr;
  const char* end = nullptr;      ///< one past its last character
  std::uint64_t digits = 0;       ///< its digits as one integer, if there are at most 19
  std::int32_t num_digits = 0;    ///< from the first that is not 0
  std::int32_t num_fraction = 0;  ///< of these after the point
  std::int32_t exponent = 0;      ///< as written, cut at +-99999
  bool negative = false;
  bool is_integer = false;  ///< neither point nor exponent

  std::string_view text() const { return {begin, static_cast<std::size_t>(end - begin)}; }
};

inline constexpr std::size_t kNumberSlackBytes = 8;

/// What the rules of a format add to those of JSON.
enum class NumberStyle : std::uint8_t {
  json,  ///< -?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?
  csv,   ///< and "1.", ".5"
};

/// Takes the number at `text` apart. It ends where no character of a number follows: there must be
/// one that is none behind every text, and kNumberSlackBytes that may be read. False if there is no
/// number.
bool scan_number(const char* text, NumberStyle style, NumberText& number) noexcept;

/// The double nearest to the number, ties to even: bit for bit what Python's float() makes of the
/// text. Too large ones are infinite.
double to_double(const NumberText& number) noexcept;

/// What an integer is, whatever its size.
enum class IntegerSize : std::uint8_t {
  int64,
  uint64,  ///< beyond int64, and not negative
  huge,
};

/// The integer, as two's complement, if it is one of 64 bits.
IntegerSize to_integer(const NumberText& number, std::uint64_t& value) noexcept;

/// True if a double holds the integer exactly.
bool is_exact_in_double(const NumberText& number) noexcept;

}  // namespace tenfold

#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string_view>

#include "base/text.hpp"

namespace tenfold {

/// The components of a number in text form.
struct NumberText {
  const char* begin = nullptr;
  const char* end = nullptr;  ///< one past its last character
  std::uint64_t digits = 0;   ///< its digits as one integer, if there are at most 19
  /// Number of digits. If there are more than 19, leading zeros are not counted.
  std::int32_t num_digits = 0;
  std::int32_t num_fraction = 0;  ///< number of digits after the decimal point
  std::int32_t exponent = 0;      ///< as written, clamped to +-99,999,999
  bool negative = false;
  bool is_integer = false;  ///< no decimal point and no exponent

  std::string_view text() const { return {begin, static_cast<std::size_t>(end - begin)}; }
};

inline constexpr std::size_t kNumberSlackBytes = 8;

/// Number syntax of a format.
enum class NumberStyle : std::uint8_t {
  json,  ///< -?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?
  csv,   ///< also "1.", ".5"
};

namespace number_parts {

/// Any number with this many digits fits 64 bits.
inline constexpr std::int32_t kMaxDigits = 19;
inline constexpr std::int32_t kMaxExponent = 99'999'999;
using base::is_digit;

/// Combines eight digits into a number. Each byte of `values` is a digit from 0 to 9; the least
/// significant byte is the first digit of the number.
inline std::uint64_t joined_digits(std::uint64_t values) noexcept {
  // Combines pairs with one multiplication, then all four pairs with two.
  values = values * 10 + (values >> 8);
  constexpr std::uint64_t kMask = 0x000000FF000000FF;
  constexpr std::uint64_t kFirst = 100 + (std::uint64_t{1'000'000} << 32);
  constexpr std::uint64_t kSecond = 1 + (std::uint64_t{10'000} << 32);
  return ((values & kMask) * kFirst + ((values >> 16) & kMask) * kSecond) >> 32;
}

/// Appends the decimal digits at `text` to `value`, which wraps on overflow. Returns the end of the
/// digits.
inline const char* take_digits(const char* text, std::uint64_t& value) noexcept {
  if constexpr (std::endian::native == std::endian::little) {
    constexpr std::array<std::uint64_t, 9> kPowers = {
        1, 10, 100, 1'000, 10'000, 100'000, 1'000'000, 10'000'000, 100'000'000};
    constexpr std::uint64_t kEach = 0x0101010101010101;
    constexpr std::uint64_t kUpper = kEach * 0xF0;
    while (true) {
      std::uint64_t bytes = 0;
      std::memcpy(&bytes, text, sizeof(bytes));
      // '0' to '9' are 0x30 to 0x39: their upper nibble is 3, and stays 3 when 6 is added. A carry
      // from another character only affects the characters after it.
      const std::uint64_t halves = (bytes & kUpper) | (((bytes + kEach * 0x06) & kUpper) >> 4);
      const std::uint64_t others = halves ^ (kEach * 0x33);
      const int count = others == 0 ? 8 : std::countr_zero(others) / 8;
      if (count == 0) return text;
      // Shift out the characters after the digits; this adds leading zeros.
      const std::uint64_t values = (bytes - kEach * 0x30) << (64 - 8 * count);
      value = value * kPowers[static_cast<std::size_t>(count)] + joined_digits(values);
      text += count;
      if (count < 8) return text;
    }
  }
  while (is_digit(*text)) {
    value = value * 10 + static_cast<std::uint64_t>(*text - '0');
    ++text;
  }
  return text;
}

}  // namespace number_parts

/// Parses the number at `text`. A character that cannot be part of a number must follow it, and the
/// kNumberSlackBytes bytes after the number must be readable. Returns false if there is no number.
inline bool scan_number(const char* text, NumberStyle style, NumberText& number) noexcept {
  using namespace number_parts;
  number.begin = text;
  number.negative = *text == '-';
  text += number.negative ? 1 : 0;
  const char* const first = text;
  std::uint64_t value = 0;
  text = take_digits(text, value);
  const auto num_integer = static_cast<std::int32_t>(
      std::min<std::ptrdiff_t>(text - first, std::numeric_limits<std::int32_t>::max() / 2));
  const bool bare_point = num_integer == 0;
  if (bare_point && (style == NumberStyle::json || *text != '.')) return false;
  if (num_integer > 1 && *first == '0') return false;
  number.is_integer = true;
  number.num_fraction = 0;
  const char* last_digit = text;
  if (*text == '.') {
    const char* const fraction = ++text;
    text = take_digits(text, value);
    if (text == fraction && (style == NumberStyle::json || bare_point)) return false;
    number.num_fraction = static_cast<std::int32_t>(
        std::min<std::ptrdiff_t>(text - fraction, std::numeric_limits<std::int32_t>::max() / 2));
    number.is_integer = false;
    last_digit = text;
  }
  number.exponent = 0;
  if (*text == 'e' || *text == 'E') {
    ++text;
    const bool negative = *text == '-';
    if (negative || *text == '+') ++text;
    if (!is_digit(*text)) return false;
    std::int32_t exponent = 0;
    for (; is_digit(*text); ++text) {
      exponent = std::min(exponent * 10 + (*text - '0'), kMaxExponent);
    }
    number.exponent = negative ? -exponent : exponent;
    number.is_integer = false;
  }
  number.end = text;
  number.digits = value;
  number.num_digits = num_integer + number.num_fraction;
  if (number.num_digits > kMaxDigits) {
    // Skip leading zeros.
    const char* significant = first;
    while (significant < last_digit && (*significant == '0' || *significant == '.')) {
      number.num_digits -= *significant == '0' ? 1 : 0;
      ++significant;
    }
  }
  return true;
}

/// The nearest double, ties to even: bit for bit the result of Python's float(). Infinite on
/// overflow.
double to_double(const NumberText& number) noexcept;

/// The integer type that can hold a number.
enum class IntegerSize : std::uint8_t {
  int64,
  uint64,  ///< an integer above int64
  huge,
};

/// Converts an integer. Returns the type that can hold it, and sets `value` to its bits (two's
/// complement for a negative number). If the result is `huge`, `value` is unspecified.
IntegerSize to_integer(const NumberText& number, std::uint64_t& value) noexcept;

/// True if the magnitude of an integer fits 64 bits and a double represents it exactly.
bool is_exact_in_double(const NumberText& number) noexcept;

}  // namespace tenfold

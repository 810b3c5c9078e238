#include "ingest/number_text.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <limits>

namespace tenfold {
namespace {

/// 10^0 to 10^22: the powers that a double holds exactly.
constexpr std::array<double, 23> kPowers = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                            1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                            1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
constexpr std::uint64_t kExactIntegers = std::uint64_t{1} << 53;
/// Any number of this many digits fits 64 bits.
constexpr std::int32_t kMaxDigits = 19;
constexpr std::int32_t kMaxExponent = 99'999;

/// 10^0 to 10^27: what the 64 bits of x87's floats hold exactly.
constexpr std::int32_t kMostDivided = 27;

/// digits / 10^power, rounded once; false if that is not certain.
bool divided(std::uint64_t digits, std::int32_t power, double& value) noexcept {
  if constexpr (std::numeric_limits<long double>::digits == 64) {
    constexpr auto kPowersOfTen = [] {
      std::array<long double, kMostDivided + 1> powers{};
      long double next = 1;
      for (long double& each : powers) {
        each = next;
        next *= 10;
      }
      return powers;
    }();
    const long double quotient =
        static_cast<long double>(digits) / kPowersOfTen[static_cast<std::size_t>(power)];
    // Rounded to 64 bits, and then to 53: that is the same as rounding once, unless the first
    // rounding ended in the middle between two doubles.
    std::uint64_t mantissa = 0;
    std::memcpy(&mantissa, &quotient, sizeof(mantissa));
    constexpr std::uint64_t kLowBits = (std::uint64_t{1} << (64 - 53)) - 1;
    constexpr std::uint64_t kMiddle = std::uint64_t{1} << (64 - 53 - 1);
    value = static_cast<double>(quotient);
    return (mantissa & kLowBits) != kMiddle;
  } else {
    return false;
  }
}

bool is_digit(char c) noexcept { return static_cast<unsigned char>(c - '0') < 10; }

/// The number that eight digits are, the first in the lowest byte; or more than eight digits make,
/// if one of them is none.
constexpr std::uint64_t kNoDigits = ~std::uint64_t{0};
std::uint64_t eight_digits(const char* text) noexcept {
  std::uint64_t bytes = 0;
  std::memcpy(&bytes, text, sizeof(bytes));
  constexpr std::uint64_t kEach = 0x0101010101010101;
  // '0' to '9' are 0x30 to 0x39: their upper half is 3, and stays 3 when 6 is added.
  constexpr std::uint64_t kUpper = kEach * 0xF0;
  const std::uint64_t halves = (bytes & kUpper) | (((bytes + kEach * 0x06) & kUpper) >> 4);
  if (halves != kEach * 0x33) return kNoDigits;
  // Two digits, four, then all eight: each step joins neighbours by one multiplication.
  bytes -= kEach * 0x30;
  bytes = bytes * 10 + (bytes >> 8);
  constexpr std::uint64_t kMask = 0x000000FF000000FF;
  constexpr std::uint64_t kFirst = 100 + (std::uint64_t{1'000'000} << 32);
  constexpr std::uint64_t kSecond = 1 + (std::uint64_t{10'000} << 32);
  return ((bytes & kMask) * kFirst + ((bytes >> 16) & kMask) * kSecond) >> 32;
}

/// Appends the digits at `text` to `value`, which wraps if they are too many.
const char* take_digits(const char* text, std::uint64_t& value) noexcept {
  if constexpr (std::endian::native == std::endian::little) {
    constexpr std::uint64_t kEightDigits = 100'000'000;
    for (std::uint64_t digits = 0; (digits = eight_digits(text)) != kNoDigits; text += 8) {
      value = value * kEightDigits + digits;
    }
  }
  while (is_digit(*text)) {
    value = value * 10 + static_cast<std::uint64_t>(*text - '0');
    ++text;
  }
  return text;
}

}  // namespace

bool scan_number(const char* text, NumberStyle style, NumberText& number) noexcept {
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
    // Zeros in front count for nothing.
    const char* significant = first;
    while (significant < last_digit && (*significant == '0' || *significant == '.')) {
      number.num_digits -= *significant == '0' ? 1 : 0;
      ++significant;
    }
  }
  return true;
}

double to_double(const NumberText& number) noexcept {
  const std::int32_t exponent = number.exponent - number.num_fraction;
  constexpr auto kMostExponent = static_cast<std::int32_t>(kPowers.size()) - 1;
  // Both are exact, so one operation rounds once, as it should (Clinger's fast path).
  if (number.num_digits <= kMaxDigits && number.digits <= kExactIntegers &&
      exponent >= -kMostExponent && exponent <= kMostExponent) {
    const auto digits = static_cast<double>(number.digits);
    const double value = exponent < 0 ? digits / kPowers[static_cast<std::size_t>(-exponent)]
                                      : digits * kPowers[static_cast<std::size_t>(exponent)];
    return number.negative ? -value : value;
  }
  double value = 0;
  if (number.num_digits <= kMaxDigits && exponent < 0 && exponent >= -kMostDivided &&
      divided(number.digits, -exponent, value)) {
    return number.negative ? -value : value;
  }
  const auto parsed = std::from_chars(number.begin, number.end, value);
  if (parsed.ec == std::errc()) return value;
  // Beyond the range, up or down: from_chars leaves `value` as it was.
  const bool is_large = number.num_digits + exponent > 0;
  value = is_large ? std::numeric_limits<double>::infinity() : 0;
  return number.negative ? -value : value;
}

IntegerSize to_integer(const NumberText& number, std::uint64_t& value) noexcept {
  constexpr std::uint64_t kSign = std::uint64_t{1} << 63;
  std::uint64_t magnitude = number.digits;
  if (number.num_digits > kMaxDigits) {
    const char* const first = number.begin + (number.negative ? 1 : 0);
    if (std::from_chars(first, number.end, magnitude).ec != std::errc()) return IntegerSize::huge;
  }
  value = number.negative ? ~magnitude + 1 : magnitude;
  if (number.negative) return magnitude <= kSign ? IntegerSize::int64 : IntegerSize::huge;
  return magnitude < kSign ? IntegerSize::int64 : IntegerSize::uint64;
}

bool is_exact_in_double(const NumberText& number) noexcept {
  std::uint64_t magnitude = number.digits;
  if (number.num_digits > kMaxDigits) {
    const char* const first = number.begin + (number.negative ? 1 : 0);
    if (std::from_chars(first, number.end, magnitude).ec != std::errc()) return false;
  }
  if (magnitude <= kExactIntegers) return true;
  // 53 bits between the first and the last that is set.
  return std::countl_zero(magnitude) + std::countr_zero(magnitude) >= 64 - 53;
}

}  // namespace tenfold

#include "ingest/number_text.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <limits>

namespace tenfold {
namespace {

/// 10^0 to 10^22: the powers of ten that a double represents exactly.
constexpr std::array<double, 23> kPowers = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                            1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                            1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
constexpr std::uint64_t kExactIntegers = std::uint64_t{1} << 53;
using number_parts::kMaxDigits;

/// 5^-1 to 5^-27, normalised to 128 bits and rounded up: 2^127 <= bits < 2^128.
constexpr std::int32_t kMaxDivided = 27;
struct Reciprocal {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
};
constexpr std::array<Reciprocal, kMaxDivided + 1> kReciprocals = [] {
  std::array<Reciprocal, kMaxDivided + 1> made{};
  std::uint64_t power = 1;
  for (std::size_t i = 1; i < made.size(); ++i) {
    power *= 5;  // 5^27 has 63 bits
    std::uint64_t rest = 1;
    while (rest < power) rest *= 2;
    // rest / power is in [1, 2): compute its bits one by one.
    for (int bit = 0; bit < 128; ++bit) {
      made[i].high = made[i].high << 1 | made[i].low >> 63;
      made[i].low = made[i].low << 1 | (rest >= power ? 1 : 0);
      rest = (rest >= power ? rest - power : rest) * 2;
    }
    if (++made[i].low == 0) ++made[i].high;
  }
  return made;
}();

/// The upper and lower half of a * b.
Reciprocal product_of(std::uint64_t a, std::uint64_t b) noexcept {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return {static_cast<std::uint64_t>(product >> 64), static_cast<std::uint64_t>(product)};
}

/// digits / 10^power, rounded to the nearest double, ties to even (D. Lemire, Number Parsing at a
/// Gigabyte per Second, 2021). `digits` is not 0.
double divided(std::uint64_t digits, std::int32_t power) noexcept {
  const int shift = std::countl_zero(digits);
  digits <<= shift;
  const Reciprocal& factor = kReciprocals[static_cast<std::size_t>(power)];
  Reciprocal product = product_of(digits, factor.high);
  constexpr std::uint64_t kLowBits = (std::uint64_t{1} << (64 - 55)) - 1;
  if ((product.high & kLowBits) == kLowBits) {
    // The lower half of the factor may carry into the significant bits.
    product.low += product_of(digits, factor.low).high;
    if (product.low < product_of(digits, factor.low).high) ++product.high;
  }
  const auto upper = static_cast<int>(product.high >> 63);
  const int cut = upper + 64 - 55;
  std::uint64_t mantissa = product.high >> cut;
  // 54 bits: exactly halfway between two doubles only if no bits were truncated.
  constexpr std::int32_t kMaxExact = 4;
  const bool is_middle = product.low <= 1 && power <= kMaxExact && (mantissa & 3) == 1 &&
                         mantissa << cut == product.high;
  if (is_middle) mantissa &= ~std::uint64_t{1};
  mantissa = (mantissa + (mantissa & 1)) >> 1;
  // The digits are a number in [2^63, 2^64), the product one in [2^126, 2^128).
  const int floor_of_log = ((152'170 + 65'536) * -power) >> 16;
  int exponent = floor_of_log + 63 + upper - shift + 1023;
  if (mantissa == std::uint64_t{1} << 53) {
    mantissa >>= 1;
    ++exponent;
  }
  mantissa &= (std::uint64_t{1} << 52) - 1;
  return std::bit_cast<double>(mantissa | static_cast<std::uint64_t>(exponent) << 52);
}

}  // namespace

double to_double(const NumberText& number) noexcept {
  const std::int32_t exponent = number.exponent - number.num_fraction;
  constexpr auto kMaxExponent = static_cast<std::int32_t>(kPowers.size()) - 1;
  // Both operands are exact, so a single operation rounds correctly (Clinger's fast path).
  if (number.num_digits <= kMaxDigits && number.digits <= kExactIntegers &&
      exponent >= -kMaxExponent && exponent <= kMaxExponent) {
    const auto digits = static_cast<double>(number.digits);
    const double value = exponent < 0 ? digits / kPowers[static_cast<std::size_t>(-exponent)]
                                      : digits * kPowers[static_cast<std::size_t>(exponent)];
    return number.negative ? -value : value;
  }
  double value = 0;
  if (number.num_digits <= kMaxDigits && number.digits != 0 && exponent < 0 &&
      exponent >= -kMaxDivided) {
    value = divided(number.digits, -exponent);
    return number.negative ? -value : value;
  }
  const auto parsed = std::from_chars(number.begin, number.end, value);
  if (parsed.ec == std::errc()) return value;
  // Overflow or underflow: from_chars left `value` unchanged.
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
  // At most 53 bits from the first to the last set bit.
  return std::countl_zero(magnitude) + std::countr_zero(magnitude) >= 64 - 53;
}

}  // namespace tenfold

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

#pragma once

#include <bit>
#include <cstdint>

namespace tenfold {

/// The float formats of 8 and 16 bits, converted without branches, so that loops over them
/// vectorise. Each has Bits, to_float(Bits) and from_float(float).
namespace small_float {

/// A format of a sign bit, kExponentBits and kMantissaBits in the IEEE 754 layout, with subnormals.
template <class BitsType, int kExponentBits, int kMantissaBits, int kBias>
struct Layout {
  using Bits = BitsType;
  static constexpr int kShift = 23 - kMantissaBits;
  static constexpr std::uint32_t kSign = 1U << (kExponentBits + kMantissaBits);
  static constexpr std::uint32_t kLeastNormal = static_cast<std::uint32_t>(128 - kBias) << 23;

  /// Rounds the magnitude `value` (the bits of a positive float) to nearest, ties to even. Correct
  /// for every value in range: a carry out of the mantissa increments the exponent.
  static constexpr std::uint32_t round(std::uint32_t value) noexcept {
    // Adding this power of two shifts a subnormal's bits into place and lets the CPU round.
    constexpr auto kMagic = static_cast<std::uint32_t>(127 - kBias + kShift + 1) << 23;
    const std::uint32_t subnormal =
        std::bit_cast<std::uint32_t>(std::bit_cast<float>(value) + std::bit_cast<float>(kMagic)) -
        kMagic;
    constexpr auto kRebias = static_cast<std::uint32_t>(kBias - 127) << 23;
    const std::uint32_t odd = (value >> kShift) & 1U;
    const std::uint32_t normal = (value + kRebias + ((1U << (kShift - 1)) - 1) + odd) >> kShift;
    return value < kLeastNormal ? subnormal : normal;
  }

  /// The float bits of a magnitude. Does not treat the highest exponent specially.
  static constexpr std::uint32_t widen(std::uint32_t magnitude) noexcept {
    const std::uint32_t normal =
        (magnitude << kShift) + (static_cast<std::uint32_t>(127 - kBias) << 23);
    constexpr float kLeast = std::bit_cast<float>((128U - kBias - kMantissaBits) << 23);
    const auto subnormal = std::bit_cast<std::uint32_t>(
        static_cast<float>(static_cast<std::int32_t>(magnitude)) * kLeast);
    return magnitude < (1U << kMantissaBits) ? subnormal : normal;
  }

  static constexpr std::uint32_t sign_of(std::uint32_t bits) noexcept {
    return (bits & kSign) << (31 - kExponentBits - kMantissaBits);
  }
  static constexpr std::uint32_t sign_from(std::uint32_t float_bits) noexcept {
    return (float_bits >> 31) << (kExponentBits + kMantissaBits);
  }
};

/// float16 and float8_e5m2: the highest exponent encodes infinity and NaN.
template <class BitsType, int kExponentBits, int kMantissaBits, int kBias>
struct Ieee : Layout<BitsType, kExponentBits, kMantissaBits, kBias> {
  using Base = Layout<BitsType, kExponentBits, kMantissaBits, kBias>;
  static constexpr std::uint32_t kInfinity = ((1U << kExponentBits) - 1) << kMantissaBits;
  static constexpr std::uint32_t kTooLarge = static_cast<std::uint32_t>(128 + kBias) << 23;

  static BitsType from_float(float value) noexcept {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
    std::uint32_t out = Base::round(magnitude);
    out = magnitude >= kTooLarge ? kInfinity : out;
    out = magnitude > 0x7F800000U ? Base::kSign - (kMantissaBits == 2 ? 1U : 0x200U) : out;
    return static_cast<BitsType>(out | Base::sign_from(bits));
  }
  static float to_float(BitsType value) noexcept {
    const std::uint32_t bits = value;
    const std::uint32_t magnitude = bits & (Base::kSign - 1);
    std::uint32_t out = Base::widen(magnitude);
    out = magnitude >= kInfinity ? 0x7F800000U | (magnitude << Base::kShift) : out;
    out = magnitude > kInfinity ? out | 0x00400000U : out;  // quiet NaN, as hardware produces
    return std::bit_cast<float>(out | Base::sign_of(bits));
  }
};
using Float16 = Ieee<std::uint16_t, 5, 10, 15>;
using Float8E5m2 = Ieee<std::uint8_t, 5, 2, 15>;

/// float8_e4m3fn: no infinities; NaN is all ones. Values above 448 become 448, as in torch 2.13
/// (older versions convert them to NaN).
struct Float8E4m3fn : Layout<std::uint8_t, 4, 3, 7> {
  static std::uint8_t from_float(float value) noexcept {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
    std::uint32_t out = magnitude >= (1087U << 20) ? 0x7EU : round(magnitude);
    out = out > 0x7EU ? 0x7EU : out;  // numbers in (464, 480) round to NaN: clamp
    out = magnitude > 0x7F800000U ? 0x7FU : out;
    return static_cast<std::uint8_t>(out | sign_from(bits));
  }
  static float to_float(std::uint8_t value) noexcept {
    const std::uint32_t magnitude = value & 0x7FU;
    const std::uint32_t out = magnitude == 0x7FU ? 0x7FF00000U : widen(magnitude);
    return std::bit_cast<float>(out | sign_of(value));
  }
};

/// float8_e4m3fnuz, float8_e5m2fnuz: no infinities; the code of negative zero is NaN.
template <int kExponentBits, int kMantissaBits, int kBias>
struct Fnuz : Layout<std::uint8_t, kExponentBits, kMantissaBits, kBias> {
  using Base = Layout<std::uint8_t, kExponentBits, kMantissaBits, kBias>;
  static constexpr std::uint32_t kTooLarge =
      static_cast<std::uint32_t>(127 + (1 << kExponentBits) - kBias) << 23;

  static std::uint8_t from_float(float value) noexcept {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
    const std::uint32_t rounded = Base::round(magnitude);
    // A carry past the largest number gives the code of negative zero, which is NaN, as in torch.
    std::uint32_t out = rounded == 0 ? 0U : rounded | Base::sign_from(bits);
    out = magnitude >= kTooLarge ? 0x80U : out;
    return static_cast<std::uint8_t>(out);
  }
  static float to_float(std::uint8_t value) noexcept {
    const std::uint32_t bits = Base::widen(value & 0x7FU) | Base::sign_of(value);
    return std::bit_cast<float>(value == 0x80U ? 0x7FC00000U : bits);
  }
};
using Float8E4m3fnuz = Fnuz<4, 3, 8>;
using Float8E5m2fnuz = Fnuz<5, 2, 16>;

/// float8_e8m0fnu: a power of two, no sign, no zero; 255 is NaN.
struct Float8E8m0fnu {
  using Bits = std::uint8_t;
  static std::uint8_t from_float(float value) noexcept {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(value) & 0x7FFFFFFFU;
    const std::uint32_t exponent = bits >> 23;
    // As in torch: a mantissa of exactly one half rounds up for normal numbers. A subnormal has an
    // implied bit of 0, so one half is exact (2^-127), and only more rounds up.
    const std::uint32_t half = exponent > 0 ? 0x400000U : 0x400001U;
    const std::uint32_t rounded = exponent + ((bits & 0x7FFFFFU) >= half ? 1U : 0U);
    return static_cast<std::uint8_t>(exponent == 255 ? 255U : rounded);
  }
  static float to_float(std::uint8_t value) noexcept {
    const std::uint32_t bits = value == 0     ? 0x00400000U  // 2^-127, a subnormal
                               : value == 255 ? 0x7FC00000U
                                              : std::uint32_t{value} << 23;
    return std::bit_cast<float>(bits);
  }
};

/// bfloat16: the upper half of a float32.
struct Bfloat16 {
  using Bits = std::uint16_t;
  static std::uint16_t from_float(float value) noexcept {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
    return static_cast<std::uint16_t>((bits & 0x7FFFFFFFU) > 0x7F800000U ? 0x7FC0U : rounded);
  }
  static float to_float(std::uint16_t value) noexcept {
    return std::bit_cast<float>(std::uint32_t{value} << 16);
  }
};

}  // namespace small_float
}  // namespace tenfold

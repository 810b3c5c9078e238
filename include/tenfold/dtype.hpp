#pragma once

#include <array>
#include <complex>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <type_traits>

#include <tenfold/export.hpp>

namespace tenfold {

/// The supported element types of torch, by torch's names. `float4_e2m1fn_x2` is two 4-bit numbers
/// in one byte, counted (as torch does) as one element.
enum class DType : std::uint8_t {
  bool_,
  uint8,
  uint16,
  uint32,
  uint64,
  int8,
  int16,
  int32,
  int64,
  float16,
  bfloat16,
  float32,
  float64,
  complex32,
  complex64,
  complex128,
  float8_e4m3fn,
  float8_e4m3fnuz,
  float8_e5m2,
  float8_e5m2fnuz,
  float8_e8m0fnu,
  float4_e2m1fn_x2,
};

/// The number of dtypes.
inline constexpr std::size_t kNumDTypes = 22;

/// All dtypes, in the order of the enumeration.
TENFOLD_API const std::array<DType, kNumDTypes>& all_dtypes() noexcept;

/// The size of one element in bytes: 1, 2, 4, 8 or 16.
TENFOLD_API std::size_t itemsize(DType dtype) noexcept;

/// Returns torch's name without the module: "float32", "bool", "float8_e4m3fn".
TENFOLD_API std::string to_string(DType dtype);

/// Writes to_string().
TENFOLD_API std::ostream& operator<<(std::ostream& out, DType dtype);

/// The dtype of that name; nullopt if there is none.
TENFOLD_API std::optional<DType> dtype_from_name(std::string_view name) noexcept;

/// True for uint8 to int64; false for bool.
constexpr bool is_integer(DType dtype) noexcept {
  return dtype >= DType::uint8 && dtype <= DType::int64;
}

/// True for complex32, complex64 and complex128.
constexpr bool is_complex(DType dtype) noexcept {
  return dtype >= DType::complex32 && dtype <= DType::complex128;
}

/// True for floating-point dtypes with one number per element: not for float4_e2m1fn_x2, which has
/// two.
constexpr bool is_floating_point(DType dtype) noexcept {
  return (dtype >= DType::float16 && dtype <= DType::float64) ||
         (dtype >= DType::float8_e4m3fn && dtype <= DType::float8_e8m0fnu);
}

namespace detail {
/// The value of the element with these bits; `dtype` is floating-point and narrower than 32 bits.
TENFOLD_API float float_of_bits(DType dtype, std::uint16_t bits) noexcept;
/// The bits of the element of `dtype` to which torch converts `value`; `dtype` is floating-point
/// and narrower than 32 bits.
TENFOLD_API std::uint16_t bits_of_float(DType dtype, float value) noexcept;
}  // namespace detail

/// An element of a floating-point dtype narrower than 32 bits, as it is stored: its bits. It
/// converts to float exactly, and from float as torch 2.13 does: to nearest, ties to even. For
/// float8_e8m0fnu, which has neither sign nor 0, the sign is ignored, and ties and all values below
/// 2^-126 round up.
///
///     std::span<const tenfold::Half> values = tensor.span<tenfold::Half>();
///     float first = values[0];
///     tenfold::BFloat16 rounded(0.1F);
template <DType kDType>
class SmallFloat {
 public:
  /// The unsigned integer of the same size.
  using Bits = std::conditional_t<kDType == DType::float16 || kDType == DType::bfloat16,
                                  std::uint16_t, std::uint8_t>;

  /// The element whose bits are all 0.
  constexpr SmallFloat() noexcept = default;
  /// The element nearest to `value`, rounded as described at the class.
  explicit SmallFloat(float value) noexcept
      : bits_(static_cast<Bits>(detail::bits_of_float(kDType, value))) {}
  /// The element with these bits.
  static constexpr SmallFloat from_bits(Bits bits) noexcept {
    SmallFloat made;
    made.bits_ = bits;
    return made;
  }

  /// The exact value of the element.
  operator float() const noexcept { return detail::float_of_bits(kDType, bits_); }
  /// The bits of the element.
  constexpr Bits bits() const noexcept { return bits_; }

 private:
  Bits bits_ = 0;
};

using Half = SmallFloat<DType::float16>;                     ///< float16
using BFloat16 = SmallFloat<DType::bfloat16>;                ///< bfloat16
using Float8_e4m3fn = SmallFloat<DType::float8_e4m3fn>;      ///< float8_e4m3fn
using Float8_e4m3fnuz = SmallFloat<DType::float8_e4m3fnuz>;  ///< float8_e4m3fnuz
using Float8_e5m2 = SmallFloat<DType::float8_e5m2>;          ///< float8_e5m2
using Float8_e5m2fnuz = SmallFloat<DType::float8_e5m2fnuz>;  ///< float8_e5m2fnuz
using Float8_e8m0fnu = SmallFloat<DType::float8_e8m0fnu>;    ///< float8_e8m0fnu

/// The dtype of a C++ type, in its member `value`; to be specialized for element types of other
/// libraries. tenfold/torch.hpp specializes it for some element types of c10, such as at::Half.
template <class T>
struct ElementType {};

/// Integer types of at most 8 bytes: the size and the sign determine the dtype, whatever the name
/// of the type (`long`, `long long`, `size_t`, ...). `signed char` and `unsigned char` are
/// integers, other character types are not.
template <std::integral T>
  requires(!std::is_const_v<T> && !std::is_volatile_v<T> && sizeof(T) <= 8 &&
           !std::same_as<T, bool> && !std::same_as<T, char> && !std::same_as<T, wchar_t> &&
           !std::same_as<T, char8_t> && !std::same_as<T, char16_t> && !std::same_as<T, char32_t>)
struct ElementType<T> {
  /// The dtype that has the size and the sign of T.
  static constexpr DType value = std::is_signed_v<T> ? (sizeof(T) == 1   ? DType::int8
                                                        : sizeof(T) == 2 ? DType::int16
                                                        : sizeof(T) == 4 ? DType::int32
                                                                         : DType::int64)
                                                     : (sizeof(T) == 1   ? DType::uint8
                                                        : sizeof(T) == 2 ? DType::uint16
                                                        : sizeof(T) == 4 ? DType::uint32
                                                                         : DType::uint64);
};
/// @cond specializations
template <>
struct ElementType<bool> {
  static constexpr DType value = DType::bool_;
};
template <>
struct ElementType<float> {
  static constexpr DType value = DType::float32;
};
template <>
struct ElementType<double> {
  static constexpr DType value = DType::float64;
};
template <>
struct ElementType<std::complex<float>> {
  static constexpr DType value = DType::complex64;
};
template <>
struct ElementType<std::complex<double>> {
  static constexpr DType value = DType::complex128;
};
template <DType kDType>
struct ElementType<SmallFloat<kDType>> {
  static constexpr DType value = kDType;
};
/// @endcond

/// A C++ type whose values a tensor may hold as elements: bool, integers, float, double,
/// std::complex<float>, std::complex<double>, SmallFloat (Half, BFloat16, ...), and types for which
/// ElementType is specialized.
template <class T>
concept Element = requires {
  { ElementType<T>::value } -> std::convertible_to<DType>;
};

/// The dtype that holds C++ values of type T: dtype_of<float>() == DType::float32.
template <Element T>
constexpr DType dtype_of() noexcept {
  return ElementType<T>::value;
}

}  // namespace tenfold

#pragma once

#include <array>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include <tenfold/export.hpp>

namespace tenfold {

/// The element types of torch, by torch's names. `float4_e2m1fn_x2` is two 4-bit numbers in
/// one byte, counted (as torch does) as one element.
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

inline constexpr std::size_t kNumDTypes = 22;

/// All dtypes, in the order of the enumeration.
TENFOLD_API const std::array<DType, kNumDTypes>& all_dtypes() noexcept;

/// Bytes of one element: 1, 2, 4, 8 or 16.
TENFOLD_API std::size_t itemsize(DType dtype) noexcept;

/// torch's name without the module: "float32", "bool", "float8_e4m3fn".
TENFOLD_API std::string_view name(DType dtype) noexcept;

/// The dtype of that name, or nothing.
TENFOLD_API std::optional<DType> dtype_from_name(std::string_view name) noexcept;

/// True for uint8 to int64; false for bool.
constexpr bool is_integer(DType dtype) noexcept {
  return dtype >= DType::uint8 && dtype <= DType::int64;
}

constexpr bool is_complex(DType dtype) noexcept {
  return dtype >= DType::complex32 && dtype <= DType::complex128;
}

/// True for dtypes with one real number per element: not for float4_e2m1fn_x2, which has two.
constexpr bool is_floating_point(DType dtype) noexcept {
  return (dtype >= DType::float16 && dtype <= DType::float64) ||
         (dtype >= DType::float8_e4m3fn && dtype <= DType::float8_e8m0fnu);
}

/// The dtype that holds C++ values of type T: dtype_of<float>() == DType::float32.
template <class T>
constexpr DType dtype_of() noexcept;

template <>
constexpr DType dtype_of<bool>() noexcept {
  return DType::bool_;
}
template <>
constexpr DType dtype_of<std::uint8_t>() noexcept {
  return DType::uint8;
}
template <>
constexpr DType dtype_of<std::uint16_t>() noexcept {
  return DType::uint16;
}
template <>
constexpr DType dtype_of<std::uint32_t>() noexcept {
  return DType::uint32;
}
template <>
constexpr DType dtype_of<std::uint64_t>() noexcept {
  return DType::uint64;
}
template <>
constexpr DType dtype_of<std::int8_t>() noexcept {
  return DType::int8;
}
template <>
constexpr DType dtype_of<std::int16_t>() noexcept {
  return DType::int16;
}
template <>
constexpr DType dtype_of<std::int32_t>() noexcept {
  return DType::int32;
}
template <>
constexpr DType dtype_of<std::int64_t>() noexcept {
  return DType::int64;
}
template <>
constexpr DType dtype_of<float>() noexcept {
  return DType::float32;
}
template <>
constexpr DType dtype_of<double>() noexcept {
  return DType::float64;
}
template <>
constexpr DType dtype_of<std::complex<float>>() noexcept {
  return DType::complex64;
}
template <>
constexpr DType dtype_of<std::complex<double>>() noexcept {
  return DType::complex128;
}

}  // namespace tenfold

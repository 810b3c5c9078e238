#include "sparse/sum.hpp"

#include <complex>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/tensor/cast.hpp"

namespace tenfold {
namespace {

template <class T>
void add(const std::byte* from, std::byte* into) {
  T a;
  T b;
  std::memcpy(&a, into, sizeof(T));
  std::memcpy(&b, from, sizeof(T));
  a = static_cast<T>(a + b);
  std::memcpy(into, &a, sizeof(T));
}

/// Sums of unsigned numbers wrap, and have the bits of those of signed ones.
template <class T>
void add_wrapping(const std::byte* from, std::byte* into) {
  add<std::make_unsigned_t<T>>(from, into);
}

void add_as_float(DType dtype, const std::byte* from, std::byte* into) {
  float a = 0;
  float b = 0;
  cast_elements(dtype, into, DType::float32, reinterpret_cast<std::byte*>(&a), 1);
  cast_elements(dtype, from, DType::float32, reinterpret_cast<std::byte*>(&b), 1);
  a += b;
  cast_elements(DType::float32, reinterpret_cast<const std::byte*>(&a), dtype, into, 1);
}

}  // namespace

bool can_add(DType dtype) noexcept {
  switch (dtype) {
    case DType::complex32:
    case DType::float8_e4m3fn:
    case DType::float8_e4m3fnuz:
    case DType::float8_e5m2:
    case DType::float8_e5m2fnuz:
    case DType::float8_e8m0fnu:
    case DType::float4_e2m1fn_x2:
      return false;
    default:
      return true;
  }
}

void add_element(DType dtype, const std::byte* from, std::byte* into) {
  switch (dtype) {
    case DType::bool_:
      *into = *into != std::byte{0} || *from != std::byte{0} ? std::byte{1} : std::byte{0};
      return;
    case DType::uint8:
    case DType::int8:
      return add_wrapping<std::int8_t>(from, into);
    case DType::uint16:
    case DType::int16:
      return add_wrapping<std::int16_t>(from, into);
    case DType::uint32:
    case DType::int32:
      return add_wrapping<std::int32_t>(from, into);
    case DType::uint64:
    case DType::int64:
      return add_wrapping<std::int64_t>(from, into);
    case DType::float16:
    case DType::bfloat16:
      return add_as_float(dtype, from, into);
    case DType::float32:
      return add<float>(from, into);
    case DType::float64:
      return add<double>(from, into);
    case DType::complex64:
      return add<std::complex<float>>(from, into);
    case DType::complex128:
      return add<std::complex<double>>(from, into);
    default:
      return;
  }
}

}  // namespace tenfold

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <tenfold/dtype.hpp>

namespace tenfold {

/// Returns `use(T())` for the type T of the elements of an integer dtype.
template <class Use>
decltype(auto) with_integer_type(DType dtype, const Use& use) {
  switch (dtype) {
    case DType::uint8:
      return use(std::uint8_t());
    case DType::uint16:
      return use(std::uint16_t());
    case DType::uint32:
      return use(std::uint32_t());
    case DType::uint64:
      return use(std::uint64_t());
    case DType::int8:
      return use(std::int8_t());
    case DType::int16:
      return use(std::int16_t());
    case DType::int32:
      return use(std::int32_t());
    default:
      return use(std::int64_t());
  }
}

/// The element of an integer dtype at an address, which needs no alignment. A uint64 of 2^63 or
/// more becomes negative.
inline std::int64_t integer_at(DType dtype, const std::byte* element) {
  return with_integer_type(dtype, [&]<class T>(T value) {
    std::memcpy(&value, element, sizeof(value));
    return static_cast<std::int64_t>(value);
  });
}

}  // namespace tenfold

#include "core/tensor/promote.hpp"

#include <string>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"

namespace tenfold {
namespace {

/// True for the dtypes that have a common dtype only with themselves and with floats.
bool is_wide_unsigned(DType dtype) { return dtype >= DType::uint16 && dtype <= DType::uint64; }
bool is_signed(DType dtype) { return dtype >= DType::int8 && dtype <= DType::int64; }
bool is_float(DType dtype) { return dtype >= DType::float16 && dtype <= DType::float64; }

[[noreturn]] void refuse(DType left, DType right) {
  throw base::unsupported()
      .part("dtypes")
      .expected("two with a common dtype")
      .found(to_string(left), " and ", to_string(right));
}

/// The dtype of the parts of a complex number; other dtypes are returned unchanged.
DType real(DType dtype) {
  switch (dtype) {
    case DType::complex32:
      return DType::float16;
    case DType::complex64:
      return DType::float32;
    case DType::complex128:
      return DType::float64;
    default:
      return dtype;
  }
}

DType complex_of(DType part) {
  if (part == DType::float64) return DType::complex128;
  return part == DType::float16 ? DType::complex32 : DType::complex64;
}

DType promoted_integers(DType left, DType right) {
  if (is_signed(left) && is_signed(right)) return itemsize(left) > itemsize(right) ? left : right;
  if (right == DType::uint8) std::swap(left, right);
  if (left != DType::uint8 || !is_signed(right)) refuse(left, right);
  return right == DType::int8 ? DType::int16 : right;
}

}  // namespace

DType promoted(DType left, DType right) {
  if (left == right) return left;
  for (const DType dtype : {left, right}) {
    const bool is_known =
        dtype == DType::bool_ || is_integer(dtype) || is_float(dtype) || tenfold::is_complex(dtype);
    if (!is_known) refuse(left, right);
  }
  if ((is_wide_unsigned(left) && !is_float(right)) ||
      (is_wide_unsigned(right) && !is_float(left))) {
    refuse(left, right);
  }
  if (tenfold::is_complex(left) || tenfold::is_complex(right)) {
    return complex_of(promoted(real(left), real(right)));
  }
  if (left == DType::bool_) return right;
  if (right == DType::bool_) return left;
  if (is_float(left) && is_float(right)) {
    const bool are_halves = itemsize(left) == 2 && itemsize(right) == 2;
    if (are_halves) return DType::float32;
    return itemsize(left) > itemsize(right) ? left : right;
  }
  if (is_float(left)) return left;
  if (is_float(right)) return right;
  return promoted_integers(left, right);
}

bool keeps_kind(DType from, DType to) noexcept {
  const auto kind = [](DType dtype) {
    if (dtype == DType::bool_) return 0;
    if (is_integer(dtype)) return 1;
    return tenfold::is_complex(dtype) ? 3 : 2;
  };
  return kind(from) <= kind(to);
}

}  // namespace tenfold

#pragma once

#include <cstddef>
#include <cstdint>

#include <tenfold/dtype.hpp>

namespace tenfold {

/// True if cast_elements() supports the pair: a dtype to itself, real to real, real to complex,
/// complex to complex. Not supported: complex to real, and float4_e2m1fn_x2 to or from anything
/// else.
bool can_cast(DType from, DType to) noexcept;

/// Converts `count` contiguous elements as torch's `.to(dtype)` does. Rounds to nearest, ties to
/// even; for a float target of 8 or 16 bits, rounds to float32 first. In float8_e8m0fnu, which has
/// neither sign nor 0, ties and all numbers between 2^-127 and 2^-126 are rounded up. Values beyond
/// the range of a float type become infinity; in float8_e4m3fn they become 448, in the fnuz types
/// and float8_e8m0fnu they become NaN. Floats are truncated to integers; any value except 0 becomes
/// true. NaN, and floats beyond an integer's range, for which torch's result is undefined, give the
/// same integer on every CPU. `source` and `target` must not overlap, and need no alignment. Throws
/// Error(unsupported) if can_cast() is false.
void cast_elements(DType from, const std::byte* source, DType to, std::byte* target,
                   std::size_t count);

/// Index of the first element that dtype `to` cannot hold; `count` if there is none, and 0 if
/// can_cast() is false. An integer dtype cannot hold integers out of its range, fractions, infinity
/// and NaN. A float dtype cannot hold numbers out of its range, nor infinity, negative numbers or 0
/// if it has no representation for them. Bool can hold 0 and 1. Rounding to a float dtype is
/// accepted.
std::int64_t first_not_fitting(DType from, const std::byte* elements, DType to, std::int64_t count);

}  // namespace tenfold

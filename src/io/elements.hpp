#pragma once

#include <cstddef>
#include <span>

#include <tenfold/dtype.hpp>

namespace tenfold {

/// Numbers in one element: 2 for float4_e2m1fn_x2, else 1.
std::size_t doubles_per_element(DType dtype) noexcept;

/// The elements as double, into the start of `values`, which is large enough; returns that start.
/// Complex numbers by magnitude.
std::span<double> to_doubles(DType dtype, std::span<const std::byte> bytes,
                             std::span<double> values);

}  // namespace tenfold

#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>

#include <tenfold/dtype.hpp>
#include <tenfold/leaf.hpp>

namespace tenfold {

/// Removes repeated elements of expanded tensors: a dimension along which all `leaves` have stride
/// 0 gets length 1. All leaves must have the same shape. Returns how often each remaining element
/// was repeated. Returns 1 and changes nothing if a leaf is nested or not in memory.
std::uint64_t drop_repeats(std::initializer_list<Leaf*> leaves);

/// Numbers per element: 2 for float4_e2m1fn_x2, else 1.
std::size_t doubles_per_element(DType dtype) noexcept;

/// Converts the elements to double, and writes the results to the start of `values`, which must be
/// large enough. Returns the written part. Complex numbers become their magnitudes.
std::span<double> to_doubles(DType dtype, std::span<const std::byte> bytes,
                             std::span<double> values);

}  // namespace tenfold

#pragma once

#include <cstddef>
#include <span>

#include <tenfold/dtype.hpp>

namespace tenfold {

/// Fills `elements` with the stored form of a missing value in fixed-size rows: NaN in float
/// columns, zeros in others.
void fill_missing(DType dtype, std::span<std::byte> elements);

}  // namespace tenfold

#pragma once

#include <cstddef>
#include <span>

#include <tenfold/dtype.hpp>

namespace tenfold {

/// Fills `elements` with what is stored where a row of fixed shape has no value: NaN in float
/// columns, zeros in others.
void fill_missing(DType dtype, std::span<std::byte> elements);

}  // namespace tenfold

#pragma once

#include <cstddef>

#include <tenfold/dtype.hpp>

namespace tenfold {

/// True if add_element() knows the dtype: not float8, float4 and complex32.
bool can_add(DType dtype) noexcept;

/// Adds the element at `from` to the one at `into`, as torch adds two tensors: integers wrap, bools
/// are or-ed, 16-bit floats are added as float32. The addresses need no alignment.
void add_element(DType dtype, const std::byte* from, std::byte* into);

}  // namespace tenfold

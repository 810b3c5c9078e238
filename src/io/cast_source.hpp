#pragma once

#include <tenfold/leaf.hpp>

namespace tenfold {

/// A leaf of the same values in another dtype, which stays on disk: bytes are read and cast when
/// they are asked for, in bounded memory. Aliases of one leaf are aliases after it, too.
Leaf cast_lazily(const Leaf& leaf, DType dtype);

/// True for the dtypes that a conversion of floating-point leaves changes: float16, bfloat16,
/// float32, float64 and the float8 kinds.
bool is_floating(DType dtype) noexcept;

}  // namespace tenfold

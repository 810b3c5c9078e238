#pragma once

#include <tenfold/leaf.hpp>

namespace tenfold {

/// A leaf of the same values in another dtype, which stays on disk: bytes are read and cast when
/// they are asked for, in bounded memory. Aliases of one leaf are aliases after it, too.
Leaf cast_lazily(const Leaf& leaf, DType dtype);

}  // namespace tenfold

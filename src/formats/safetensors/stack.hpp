#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <tenfold/leaf.hpp>

namespace tenfold::detail::formats::safetensors {

// A lazy stack is stored as upstream stores it: each of its tensors once, stacked along the
// stack's dimension. These are the two directions between that tensor and those of the entries.

/// A dimension of a tensor and the one index taken of it.
using FixedDims = std::vector<std::pair<std::int64_t, std::int64_t>>;

/// The part of `dense` (a leaf on disk) with those dimensions fixed and dropped. The dimensions
/// ascend and the indices lie inside them.
Leaf slice_leaf(const Leaf& dense, const FixedDims& fixed);

/// The tensors of `parts`, at least one and all of one dtype and shape, stacked along a new
/// dimension `dim`: a leaf that can be read but never mapped.
Leaf stack_leaves(std::vector<Leaf> parts, std::int64_t dim);

}  // namespace tenfold::detail::formats::safetensors

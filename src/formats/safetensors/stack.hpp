#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <tenfold/leaf.hpp>

namespace tenfold::detail::formats::safetensors {

// A lazy stack whose entries can be stacked is stored as in tensordict: the tensors that its
// entries have under one key are stored as one tensor, stacked along the dimension of the lazy
// stack. An unbatched tensor, which must be the same in all entries, is stored once, unstacked.
// These functions convert between the stacked tensor and the tensors of the entries.

/// Pairs of a dimension of a tensor and the index to select in this dimension.
using FixedDims = std::vector<std::pair<std::int64_t, std::int64_t>>;

/// Returns the part of `dense` (a leaf on disk) at the indices in `fixed`, without the dimensions
/// in `fixed`. `fixed` must not be empty, its dimensions ascending and its indices in range.
Leaf slice_leaf(const Leaf& dense, const FixedDims& fixed);

/// Stacks the tensors of `parts` along a new dimension `dim`. `parts` is not empty, and all tensors
/// have the same dtype and shape. The result is for read(): each map() makes a new copy.
Leaf stack_leaves(std::vector<Leaf> parts, std::int64_t dim);

}  // namespace tenfold::detail::formats::safetensors

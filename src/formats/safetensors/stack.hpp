#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <tenfold/leaf.hpp>

namespace tenfold::detail::formats::safetensors {

// As in tensordict, a lazy stack whose entries can be stacked is stored with each of its tensors
// stacked along the stack's dimension. These functions convert between the stacked tensor and those
// of the entries, in both directions.

/// Dimensions of a tensor, each with the index to select.
using FixedDims = std::vector<std::pair<std::int64_t, std::int64_t>>;

/// Returns the part of `dense` (a leaf on disk) at these indices, without these dimensions. At
/// least one dimension is given. The dimensions are ascending, and the indices in range.
Leaf slice_leaf(const Leaf& dense, const FixedDims& fixed);

/// Stacks the tensors of `parts` along a new dimension `dim`. `parts` is not empty, and all tensors
/// have the same dtype and shape. The result is for read(): each map() makes a new copy.
Leaf stack_leaves(std::vector<Leaf> parts, std::int64_t dim);

}  // namespace tenfold::detail::formats::safetensors

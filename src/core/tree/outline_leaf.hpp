#pragma once

#include <memory>

#include <tenfold/leaf.hpp>

namespace tenfold {

/// A leaf with dtype and shape but without bytes, because another process has them or they do not
/// exist yet. Mapping or reading the leaf throws Error(invalid_argument). Each call creates a new
/// source, which only copies of the leaf share; stored_range() of the leaf is StoredRange{}. Throws
/// Error(invalid_argument) for a negative length and for a size beyond 63 bits.
Leaf outline_leaf(DType dtype, Shape shape);

/// Creates a new source of leaves without bytes, as in outline_leaf().
std::shared_ptr<detail::LeafSource> outline_source();

/// True for a leaf that outline_leaf() has made, or whose source is from outline_source().
bool is_outline(const Leaf& leaf);

}  // namespace tenfold

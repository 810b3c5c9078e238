#pragma once

#include <memory>

#include <tenfold/leaf.hpp>

namespace tenfold {

/// A leaf of which only dtype and shape count: its bytes are with another process, or not there
/// yet. Mapping or reading them throws Error(invalid_argument). It shares its storage, and its
/// source, with copies of itself only. Throws Error(invalid_argument) for a size beyond 63 bits.
Leaf outline_leaf(DType dtype, Shape shape);

/// The source of such leaves; each call creates one.
std::shared_ptr<detail::LeafSource> outline_source();

/// True for a leaf that outline_leaf() has made.
bool is_outline(const Leaf& leaf);

}  // namespace tenfold

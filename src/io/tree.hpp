#pragma once

#include <functional>
#include <string>
#include <vector>

#include <tenfold/tensordict.hpp>

namespace tenfold {

/// An empty node with the same info, origin and kept objects as `node`.
TensorDict empty_like(const TensorDict& node);

/// Converts a list, tuple or lazy stack that lost an item to a dict with int keys. Other nodes, and
/// lists whose keys are still "0" to "n - 1", are unchanged.
void fix_kind(TensorDict& node);

/// The same tree with each tensor replaced by `change(tensor)`.
TensorDict map_leaves(const TensorDict& tree, const std::function<Leaf(const Leaf&)>& change);
/// The same, but changes nodes without other owners in place.
TensorDict map_leaves(TensorDict&& tree, const std::function<Leaf(const Leaf&)>& change);

/// True for the same shape; for nested tensors, the same sizes of each component.
bool same_shape(const Leaf& a, const Leaf& b);

/// Tensors in order, with their paths.
struct NamedLeaf {
  KeyPath path;
  Leaf leaf;
};
std::vector<NamedLeaf> tensors_of(const TensorDict& tree);

}  // namespace tenfold

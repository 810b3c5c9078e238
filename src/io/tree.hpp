#pragma once

#include <functional>
#include <string>
#include <vector>

#include <tenfold/tensordict.hpp>

namespace tenfold {

/// An empty node that is otherwise as `node`: info, where it came from, what it keeps alive.
TensorDict empty_like(const TensorDict& node);

/// What is left of a list, tuple or lazy stack that lost an item: a dict with int keys. Other
/// nodes, and lists whose keys are still "0" to "n - 1", stay as they are.
void fix_kind(TensorDict& node);

/// The same tree with each tensor replaced by `change(tensor)`.
TensorDict map_leaves(const TensorDict& tree, const std::function<Leaf(const Leaf&)>& change);
/// As map_leaves, in place where nobody else holds the nodes.
TensorDict map_leaves(TensorDict&& tree, const std::function<Leaf(const Leaf&)>& change);

/// True for the same shape; of nested tensors, the same sizes of each component.
bool same_shape(const Leaf& a, const Leaf& b);

/// Tensors in order, with their paths.
struct NamedLeaf {
  KeyPath path;
  Leaf leaf;
};
std::vector<NamedLeaf> tensors_of(const TensorDict& tree);

}  // namespace tenfold

#pragma once

#include <functional>
#include <string>
#include <vector>

#include <tenfold/tensordict.hpp>

namespace tenfold {

/// An empty node with the info and the source path of `node`. Like `node`, it keeps the source open
/// (Node::keep).
TensorDict empty_like(const TensorDict& node);

/// The properties of a plain dict that replaces a node with `info`: keeps only schema and metadata,
/// which a root may have.
NodeInfo dict_info(const NodeInfo& info);

/// Repairs the kind of a node whose entries were changed. A list, tuple or lazy stack whose keys
/// are no longer "0" to "n - 1" becomes a dict whose integer keys are int, an incomplete sparse
/// tensor a dict. Other nodes keep their kind. Removes typed keys without an entry.
void fix_kind(TensorDict& node);

/// The same tree with each tensor replaced by `change(tensor)`.
TensorDict map_leaves(const TensorDict& tree, const std::function<Leaf(const Leaf&)>& change);
/// The same, but changes nodes without other owners in place.
TensorDict map_leaves(TensorDict&& tree, const std::function<Leaf(const Leaf&)>& change);

/// The same leaf with another tensor in memory, which must have the same shape.
Leaf with_tensor(const Leaf& leaf, Tensor tensor);
/// The same leaf over its contiguous bytes in `buffer`.
Leaf with_bytes(const Leaf& leaf, Buffer buffer);

/// True for the same shape; for nested tensors, the same sizes of each component.
bool same_shape(const Leaf& a, const Leaf& b);

/// A tensor and its path.
struct NamedLeaf {
  KeyPath path;
  Leaf leaf;
};
/// The tensors of a tree, in order.
std::vector<NamedLeaf> tensors_of(const TensorDict& tree);

}  // namespace tenfold

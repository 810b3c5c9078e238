#pragma once

#include <functional>
#include <string>
#include <vector>

#include <tenfold/schema.hpp>
#include <tenfold/tensordict.hpp>

namespace tenfold {

/// An empty node with the info and the source path of `node`. Like `node`, it keeps the source open
/// (Node::keep).
TensorDict empty_like(const TensorDict& node);

/// Returns the properties of the plain dict that replaces a node with `info`. Keeps only schema and
/// metadata, which a root may have.
NodeInfo dict_info(const NodeInfo& info);

/// Repairs the kind of a node whose entries were changed. A list, tuple or lazy stack whose keys
/// are no longer "0" to "n - 1" becomes a dict, in which keys that are integers have the type int.
/// A sparse tensor that lacks a component becomes a dict. Other nodes keep their kind. Also removes
/// elements of NodeInfo::typed_keys whose key has no entry.
void fix_kind(TensorDict& node);

/// The columns of the schema of a data set that the root of a tree has; empty if the root has none,
/// or if the schema is invalid.
std::vector<Column> columns_of(const TensorDict& root);

/// The paths of the leaves of a column.
std::vector<KeyPath> leaves_of(const Column& column);

/// Replaces the columns of the root's schema, and keeps its other members, such as that of a
/// dictionary. Throws Error(invalid_argument) like the constructor of Schema.
void replace_columns(TensorDict& root, std::vector<Column> columns);

/// Fits the schema of a data set to a tree whose entries were changed: removes the columns that
/// have no leaf in the tree. If the tensors contradict the other columns, removes the schema.
void fit_schema(TensorDict& root);

/// A copy of the tree in which each tensor is replaced by `change(tensor)`.
TensorDict map_leaves(const TensorDict& tree, const std::function<Leaf(const Leaf&)>& change);
/// Like the overload above, but changes in place the nodes that have no other owner.
TensorDict map_leaves(TensorDict&& tree, const std::function<Leaf(const Leaf&)>& change);

/// A leaf over `tensor` with the properties of `leaf`: nested sizes, is_unbatched() and grad().
/// `tensor` must have the shape of leaf.tensor().
Leaf with_tensor(const Leaf& leaf, Tensor tensor);
/// Like with_tensor(), for the contiguous tensor whose bytes are in `buffer`.
Leaf with_bytes(const Leaf& leaf, Buffer buffer);

/// True if both have the same shape or, for nested tensors, components of the same sizes.
bool same_shape(const Leaf& a, const Leaf& b);

/// A tensor and its path.
struct NamedLeaf {
  KeyPath path;
  Leaf leaf;
};
/// The tensors of a tree, in the order of TensorDict::for_each_leaf().
std::vector<NamedLeaf> tensors_of(const TensorDict& tree);

}  // namespace tenfold

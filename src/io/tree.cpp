#include "io/tree.hpp"

#include "core/node.hpp"

namespace tenfold {

TensorDict empty_like(const TensorDict& node) {
  TensorDict copy(node.info());
  copy.node()->where = node.node()->where;
  copy.node()->keep = node.node()->keep;
  return copy;
}

void fix_kind(TensorDict& node) {
  const NodeKind kind = node.kind();
  if (kind != NodeKind::list && kind != NodeKind::tuple && kind != NodeKind::lazy_stack) return;
  std::size_t position = 0;
  for (const std::string& key : node.keys()) {
    if (key == std::to_string(position)) {
      ++position;
      continue;
    }
    NodeInfo info;
    info.kind = NodeKind::dict;
    info.int_keys = true;
    node.info() = info;
    return;
  }
}

TensorDict map_leaves(const TensorDict& tree, const std::function<Leaf(const Leaf&)>& change) {
  TensorDict mapped = empty_like(tree);
  tree.for_each([&](const std::string& key, const TensorDict::Item& item) {
    if (const auto* node = std::get_if<TensorDict>(&item)) {
      mapped.set(key, map_leaves(*node, change));
    } else if (const auto* leaf = std::get_if<Leaf>(&item)) {
      mapped.set(key, TensorDict::Item(change(*leaf)));
    } else {
      mapped.set(key, item);
    }
  });
  return mapped;
}

std::vector<NamedLeaf> tensors_of(const TensorDict& tree) {
  std::vector<NamedLeaf> tensors;
  tree.for_each_leaf([&](const KeyPath& path, const TensorDict::Item& item) {
    if (const auto* leaf = std::get_if<Leaf>(&item)) tensors.push_back({path, *leaf});
  });
  return tensors;
}

}  // namespace tenfold

#include "io/tree.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <variant>

#include <tenfold/error.hpp>
#include <tenfold/schema.hpp>

#include "core/tree/node.hpp"
#include "core/tree/sparse.hpp"
#include "core/tree/typed_keys.hpp"

namespace tenfold {

TensorDict empty_like(const TensorDict& node) {
  TensorDict copy(node.info());
  node_of(copy)->where = node_of(node)->where;
  node_of(copy)->keep = node_of(node)->keep;
  return copy;
}

NodeInfo dict_info(const NodeInfo& info) {
  NodeInfo made;
  made.kind = NodeKind::dict;
  made.schema = info.schema;
  made.metadata = info.metadata;
  return made;
}

void fix_kind(TensorDict& node) {
  const NodeKind kind = node.kind();
  std::erase_if(node.info().typed_keys,
                [&](const auto& typed) { return !has_key(node, typed.first); });
  if (kind == NodeKind::sparse) {
    for (const std::string_view part : sparse_parts(node.info().layout)) {
      if (node.contains(part)) continue;
      node.info() = dict_info(node.info());
      return;
    }
  }
  if (kind != NodeKind::list && kind != NodeKind::tuple && kind != NodeKind::lazy_stack) return;
  std::size_t position = 0;
  for (const std::string& key : node.keys()) {
    if (key == std::to_string(position)) {
      ++position;
      continue;
    }
    NodeInfo info = dict_info(node.info());
    info.int_keys = true;
    fit_int_keys(info, node.keys());
    node.info() = std::move(info);
    return;
  }
}

std::vector<Column> columns_of(const TensorDict& root) {
  if (!root.info().schema) return {};
  try {
    return Schema::from_value(*root.info().schema, root.where()).columns();
  } catch (const Error&) {
    return {};
  }
}

std::vector<KeyPath> leaves_of(const Column& column) {
  std::vector<KeyPath> leaves{column.leaf, column.end_leaf, column.item_end_leaf,
                              column.valid_leaf};
  std::erase(leaves, KeyPath{});
  return leaves;
}

void replace_columns(TensorDict& root, std::vector<Column> columns) {
  const Value made = Schema(std::move(columns)).to_value();
  for (auto& [name, value] : std::get<Value::Object>(root.info().schema->data()).members) {
    if (name == "columns") value = *made.get_if<Value::Object>()->find(name);
  }
}

void fit_schema(TensorDict& root) {
  if (!root.info().schema) return;
  std::vector<Column> columns = columns_of(root);
  const std::size_t num_removed = std::erase_if(columns, [&](const Column& column) {
    const std::vector<KeyPath> leaves = leaves_of(column);
    return std::ranges::none_of(leaves, [&](const KeyPath& leaf) { return root.contains(leaf); });
  });
  if (columns.empty()) {
    root.info().schema.reset();
    return;
  }
  if (num_removed > 0) replace_columns(root, std::move(columns));
  try {
    static_cast<void>(Schema::of(root));
  } catch (const Error& error) {
    const bool is_stale =
        error.code() == ErrorCode::corrupt || error.code() == ErrorCode::invalid_argument;
    if (is_stale) root.info().schema.reset();
  }
}

TensorDict map_leaves(const TensorDict& tree, const std::function<Leaf(const Leaf&)>& change) {
  TensorDict mapped = empty_like(tree);
  Node& from = *node_of(tree);
  // Append to the list directly, without the lookup of set(), because the keys are unique.
  std::vector<Node::Entry>& entries = node_of(mapped)->entries;
  entries.reserve(from.entries.size());
  for (std::size_t i = 0; i < from.entries.size(); ++i) {
    const std::string& key = from.entries[i].key;
    if (const Leaf* leaf = from.leaf_at(i)) {
      entries.push_back({key, change(*leaf)});
      continue;
    }
    TensorDict::Item item = from.item(i);
    if (auto* node = std::get_if<TensorDict>(&item)) {
      entries.push_back({key, map_leaves(*node, change)});
    } else if (const auto* leaf = std::get_if<Leaf>(&item)) {  // loaded from a LazyItem
      entries.push_back({key, change(*leaf)});
    } else {
      entries.push_back({key, std::get<NonTensor>(std::move(item))});
    }
  }
  return mapped;
}

TensorDict map_leaves(TensorDict&& tree, const std::function<Leaf(const Leaf&)>& change) {
  if (node_of(tree).use_count() > 1) return map_leaves(std::as_const(tree), change);
  Node& node = *node_of(tree);
  for (std::size_t i = 0; i < node.entries.size(); ++i) {
    Node::Slot& slot = node.entries[i].slot;
    if (std::holds_alternative<std::shared_ptr<LazyItem>>(slot)) static_cast<void>(node.item(i));
    if (auto* leaf = std::get_if<Leaf>(&slot)) {
      *leaf = change(*leaf);
    } else if (auto* child = std::get_if<TensorDict>(&slot)) {
      *child = map_leaves(std::move(*child), change);
    }
  }
  return std::move(tree);
}

Leaf with_tensor(const Leaf& leaf, Tensor tensor) {
  Leaf made =
      leaf.is_nested() ? Leaf::nested(std::move(tensor), leaf.sizes()) : Leaf(std::move(tensor));
  made.mark_unbatched(leaf.is_unbatched());
  made.mark_grad(leaf.grad());
  return made;
}

Leaf with_bytes(const Leaf& leaf, Buffer buffer) {
  const DType dtype = leaf.dtype();
  Shape shape = leaf.is_nested()
                    ? Shape{static_cast<std::int64_t>(buffer.size_bytes() / itemsize(dtype))}
                    : leaf.shape();
  return with_tensor(leaf, Tensor(dtype, std::move(shape), std::move(buffer)));
}

bool same_shape(const Leaf& a, const Leaf& b) {
  if (a.is_nested() != b.is_nested() || a.shape() != b.shape()) return false;
  if (!a.is_nested()) return true;
  const Tensor x = a.sizes().contiguous();
  const Tensor y = b.sizes().contiguous();
  return x.shape() == y.shape() &&
         std::ranges::equal(x.span<std::int64_t>(), y.span<std::int64_t>());
}

std::vector<NamedLeaf> tensors_of(const TensorDict& tree) {
  std::vector<NamedLeaf> tensors;
  tree.for_each_leaf([&](const KeyPath& path, const TensorDict::Item& item) {
    if (const auto* leaf = std::get_if<Leaf>(&item)) tensors.push_back({path, *leaf});
  });
  return tensors;
}

}  // namespace tenfold

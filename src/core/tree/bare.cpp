#include "core/tree/bare.hpp"

#include <filesystem>
#include <mutex>
#include <utility>
#include <variant>

#include "core/tree/node.hpp"

namespace tenfold {
namespace {

bool is_container(const TensorDict::Item& item) {
  const auto* json = std::get_if<NonTensor>(&item);
  return json != nullptr && !json->is_stack &&
         (json->value.is<Value::Object>() || json->value.is<Value::List>() ||
          json->value.is<Value::Tuple>());
}

/// A copy of a bare root with another key. Keeps the path that the root was read from.
TensorDict with_key(const TensorDict& root, std::string_view key, bool is_bare) {
  TensorDict made(root.info());
  made.info().is_bare = is_bare;
  node_of(made)->where = root.where();
  node_of(made)->keep = node_of(root)->keep;
  made.set(key, node_of(root)->item(0));
  return made;
}

}  // namespace

bool is_bare(const Node& root) {
  if (!root.info.is_bare || root.info.kind != NodeKind::dict || root.entries.size() != 1) {
    return false;
  }
  const std::lock_guard lock(root.mutex);  // another thread may replace a LazyItem
  const Node::Entry& entry = root.entries[0];
  return (entry.key == kBareKey || entry.key == kBareNpzKey) &&
         !std::holds_alternative<TensorDict>(entry.slot);
}

bool is_bare(const TensorDict& root) { return is_bare(*node_of(root)); }

TensorDict bare_tree(TensorDict::Item value) {
  if (auto* node = std::get_if<TensorDict>(&value)) return std::move(*node);
  NodeInfo info;
  info.kind = NodeKind::dict;
  TensorDict tree(std::move(info));
  const bool is_node = is_container(value);
  tree.set(kBareKey, std::move(value));
  if (is_node) return tree[kBareKey];
  tree.info().is_bare = true;
  return tree;
}

TensorDict::Item bare_value(const TensorDict& root) {
  if (is_bare(root)) return node_of(root)->item(0);
  return root;
}

TensorDict with_bare_key(const TensorDict& root, std::string_view key) {
  if (!is_bare(root) || node_of(root)->entries[0].key == key) return root;
  return with_key(root, key, true);
}

TensorDict named_by_file(const TensorDict& root) {
  if (!is_bare(root)) return root;
  const std::string stem = stem_of(root.where());
  return stem.empty() ? root : with_key(root, stem, false);
}

std::string stem_of(const std::string& path) {
  const std::filesystem::path parts = std::filesystem::path(path).lexically_normal();
  return (parts.has_filename() ? parts : parts.parent_path()).stem().string();
}

}  // namespace tenfold

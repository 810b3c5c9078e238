#include "io/sparse_check.hpp"

#include <cstddef>
#include <optional>
#include <variant>

#include <tenfold/error.hpp>

#include "base/text.hpp"
#include "core/tree/node.hpp"
#include "core/tree/sparse.hpp"

namespace tenfold {
namespace {

/// Returns the child node at position `at`. Returns nullopt for a tensor or JSON value, and for a
/// lazy entry that proves to be unsupported, such as an array of strings in an archive.
std::optional<TensorDict> child_at(Node& node, std::size_t at) {
  try {
    if (node.leaf_at(at) != nullptr) return std::nullopt;  // item() would copy the leaf
    const TensorDict::Item item = node.item(at);
    const auto* child = std::get_if<TensorDict>(&item);
    return child == nullptr ? std::nullopt : std::optional(*child);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    return std::nullopt;
  }
}

void check(const TensorDict& tree, const std::string& where, KeyPath& path) {
  if (tree.kind() == NodeKind::sparse) {
    const std::string part = path.empty() ? "root" : "key " + base::quote(dotted(path));
    return check_sparse_indices(tree, {where, part});
  }
  Node& node = *node_of(tree);
  for (std::size_t i = 0; i < node.entries.size(); ++i) {
    const std::optional<TensorDict> child = child_at(node, i);
    if (!child) continue;
    path.push_back(node.entries[i].key);
    check(*child, where, path);
    path.pop_back();
  }
}

}  // namespace

void check_all_sparse_indices(const TensorDict& tree, const std::string& where) {
  KeyPath path;
  check(tree, where, path);
}

}  // namespace tenfold

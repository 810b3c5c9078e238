#include "io/sparse_check.hpp"

#include <cstddef>

#include <tenfold/error.hpp>

#include "base/text.hpp"
#include "core/tree/node.hpp"
#include "core/tree/sparse.hpp"

namespace tenfold {
namespace {

void check(const TensorDict& tree, const std::string& where, KeyPath& path) {
  if (tree.kind() == NodeKind::sparse) {
    const std::string part = path.empty() ? "root" : "key " + base::quote(dotted(path));
    return check_sparse_indices(tree, {where, part});
  }
  Node& node = *node_of(tree);
  for (std::size_t i = 0; i < node.entries.size(); ++i) {
    if (node.leaf_at(i) != nullptr) continue;  // skips most entries without copying them
    const TensorDict::Item item = node.item(i);
    const auto* child = std::get_if<TensorDict>(&item);
    if (child == nullptr) continue;
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

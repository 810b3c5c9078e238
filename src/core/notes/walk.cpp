#include "core/notes/walk.hpp"

#include <cstddef>
#include <variant>

#include "core/tree/depth.hpp"
#include "core/tree/node.hpp"

namespace tenfold {
namespace {

void walk_node(const TensorDict& tree, std::string& path, std::size_t& levels,
               TreeVisitor& visitor) {
  const Depth depth(levels);
  visitor.node(path, tree);
  Node& node = *node_of(tree);
  const std::size_t length = path.size();
  for (std::size_t i = 0; i < node.entries.size(); ++i) {
    append_note_key(path, node.entries[i].key);
    if (const Leaf* leaf = node.leaf_at(i)) {  // copies nothing
      visitor.leaf(path, *leaf);
    } else {
      const TensorDict::Item item = node.item(i);
      if (const auto* child = std::get_if<TensorDict>(&item)) {
        walk_node(*child, path, levels, visitor);
      } else if (const auto* plain = std::get_if<NonTensor>(&item)) {
        visitor.value(path, *plain);
      } else {  // a LazyItem, which item() has loaded as a leaf
        visitor.leaf(path, std::get<Leaf>(item));
      }
    }
    path.resize(length);
  }
}

}  // namespace

void append_note_key(std::string& path, std::string_view key) {
  if (!path.empty()) path.push_back('/');
  if (key.empty()) path.push_back('%');
  for (const char c : key) {
    if (c == '%') {
      path.append("%25");
    } else if (c == '/') {
      path.append("%2F");
    } else {
      path.push_back(c);
    }
  }
}

void walk(const TensorDict& tree, TreeVisitor& visitor) {
  std::string path;
  std::size_t levels = 0;
  walk_node(tree, path, levels, visitor);
}

}  // namespace tenfold

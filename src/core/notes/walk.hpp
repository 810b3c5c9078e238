#pragma once

#include <string>
#include <string_view>

#include <tenfold/tensordict.hpp>

namespace tenfold {

/// The callbacks of walk(). Paths are note paths: "model/encoder.weight", "" for the root.
class TreeVisitor {
 public:
  TreeVisitor() = default;
  TreeVisitor(const TreeVisitor&) = delete;
  TreeVisitor& operator=(const TreeVisitor&) = delete;
  virtual ~TreeVisitor() = default;

  /// Called before the entries of the node.
  virtual void node(const std::string& /*path*/, const TensorDict& /*node*/) {}
  virtual void leaf(const std::string& /*path*/, const Leaf& /*leaf*/) {}
  virtual void value(const std::string& /*path*/, const NonTensor& /*value*/) {}
};

/// Visits a node and everything below it, depth first, in the order of the entries. Reads no
/// tensor. Throws Error(invalid_argument) for nodes more than kMaxDepth levels below the root,
/// because a node may contain itself.
void walk(const TensorDict& tree, TreeVisitor& visitor);

/// Appends `key` to the note path of the node that contains it, as note_path_child() does.
void append_note_key(std::string& path, std::string_view key);

}  // namespace tenfold

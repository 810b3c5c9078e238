#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include <tenfold/tensordict.hpp>

#include "core/tree/node.hpp"
#include "formats/shared/boxes.hpp"

namespace tenfold::detail::formats {

/// A leaf and the box of it that is loaded.
struct LeafBox {
  Leaf leaf;
  Box box;
};

/// Selects the stored bytes that need no check because they are not loaded: bytes of leaves that
/// were not selected or, if boxes are given, bytes outside of all boxes. Headers, metadata and
/// bytes outside of leaves are always checked.
class VerifyFilter {
 public:
  /// `whole` is the opened tree, `selected` the result of select(): only its leaves are loaded.
  /// Parts of `whole` that are damaged or not supported are always checked. Throws Error(io) if a
  /// system call fails.
  VerifyFilter(const TensorDict& whole, TensorDict selected);
  /// Only `boxes`, which are parts of leaves of `whole`, are loaded. `selected` is a tree with
  /// these leaves.
  VerifyFilter(const TensorDict& whole, TensorDict selected, std::span<const LeafBox> boxes);

  const TensorDict& selected() const noexcept { return selected_; }
  /// Replaces selected() by one of its nodes, for the verifier of the file that stores this node.
  void set_selected(const TensorDict& node) { selected_ = node; }

  /// True if any bytes at `where`, the text of LeafSource::where(), are loaded: they belong to a
  /// selected leaf or to a box.
  bool wants(const std::string& where) const { return wanted_.contains(where); }

  /// True if all bytes at `where` are known to be bytes of leaves, and none of them are loaded.
  bool skips(const std::string& where) const { return named_.contains(where) && !wants(where); }
  /// Like skips(where), but only for the bytes [begin, end) of the leaf at `where`.
  bool skips(const std::string& where, std::uint64_t begin, std::uint64_t end) const;

 private:
  /// The bytes of a leaf that are loaded.
  struct Loaded {
    bool is_whole = false;
    std::vector<ByteBox> boxes;
  };
  using Places = std::unordered_map<std::string, Loaded>;
  static void add(Node& node, std::size_t depth, Places& places);
  static void add(const Leaf& leaf, Places& places);
  void add_box(const Leaf& leaf, const Box& box);

  TensorDict selected_;
  Places named_;
  Places wanted_;
};

}  // namespace tenfold::detail::formats

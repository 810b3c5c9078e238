#pragma once

#include <cstddef>
#include <functional>
#include <iterator>
#include <unordered_map>
#include <vector>

#include <tenfold/leaf.hpp>

#include "core/tensor/leaf_bytes.hpp"

namespace tenfold {

/// Tells which leaves of a tree hold the same stored bytes (tied weights): the first one that is
/// added holds them, later ones are its aliases. Reads no tensor.
class AliasFinder {
 public:
  /// Adds the next leaf, number 0, 1, ... in order. Gives the number of the first leaf over the
  /// same bytes: its own if it shares with none of those before.
  std::size_t add(const Leaf& leaf);

 private:
  std::unordered_map<SharedBytes, std::size_t, SharedBytesHash> first_;
  std::size_t count_ = 0;
};

/// For each item of a flat list the position of the first one over the same bytes (its own if it
/// is that one): `alias_targets(leaves, &Entry::leaf)`, with the list in for_each_leaf order.
template <class Items, class LeafOf>
std::vector<std::size_t> alias_targets(const Items& items, const LeafOf& leaf_of) {
  AliasFinder finder;
  std::vector<std::size_t> targets;
  targets.reserve(std::size(items));
  for (const auto& item : items) targets.push_back(finder.add(std::invoke(leaf_of, item)));
  return targets;
}

}  // namespace tenfold

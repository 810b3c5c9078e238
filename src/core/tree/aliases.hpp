#pragma once

#include <cstddef>
#include <functional>
#include <iterator>
#include <unordered_map>
#include <vector>

#include <tenfold/leaf.hpp>

#include "core/tensor/leaf_bytes.hpp"

namespace tenfold {

/// Finds leaves of a tree that share storage (tied weights): the first leaf that is added owns the
/// bytes, later ones are its aliases. Reads no tensor.
class AliasFinder {
 public:
  /// Adds the next leaf, number 0, 1, ... in order. Returns the number of the first leaf over the
  /// same bytes: its own if no earlier leaf shares them.
  std::size_t add(const Leaf& leaf);

 private:
  std::unordered_map<StoredRange, std::size_t> first_;
  std::size_t count_ = 0;
};

/// For each item of a flat list in for_each_leaf order, the index of the first item over the same
/// bytes, which may be its own: `alias_targets(leaves, &Entry::leaf)`.
template <class Items, class LeafOf>
std::vector<std::size_t> alias_targets(const Items& items, const LeafOf& leaf_of) {
  AliasFinder finder;
  std::vector<std::size_t> targets;
  targets.reserve(std::size(items));
  for (const auto& item : items) targets.push_back(finder.add(std::invoke(leaf_of, item)));
  return targets;
}

}  // namespace tenfold

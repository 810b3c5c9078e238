#pragma once

#include <cstddef>
#include <functional>
#include <iterator>
#include <unordered_map>
#include <vector>

#include <tenfold/leaf.hpp>

#include "core/tensor/leaf_bytes.hpp"

namespace tenfold {

/// Finds leaves of a tree that are over exactly the same bytes, such as tied weights. The first of
/// them that is added owns the bytes, and the later ones are its aliases. Reads no tensor.
class AliasFinder {
 public:
  /// Adds the next leaf; leaves are numbered 0, 1, ... in this order. Returns the number of the
  /// first leaf over the same bytes: its own number if no earlier leaf shares them.
  std::size_t add(const Leaf& leaf);

 private:
  std::unordered_map<StoredRange, std::size_t> first_;
  std::size_t count_ = 0;
};

/// Returns, for each item of a list, the index of the first item over the same bytes; the item's
/// own index if no earlier item shares them. `leaf_of`: returns the leaf of an item. Example:
/// `alias_targets(leaves, &Entry::leaf)`.
template <class Items, class LeafOf>
std::vector<std::size_t> alias_targets(const Items& items, const LeafOf& leaf_of) {
  AliasFinder finder;
  std::vector<std::size_t> targets;
  targets.reserve(std::size(items));
  for (const auto& item : items) targets.push_back(finder.add(std::invoke(leaf_of, item)));
  return targets;
}

}  // namespace tenfold

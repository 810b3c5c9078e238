#include "core/tree/aliases.hpp"

namespace tenfold {

std::size_t AliasFinder::add(const Leaf& leaf) {
  const std::size_t own = count_++;
  const StoredRange key = stored_range(leaf);
  if (key == StoredRange{}) return own;
  return first_.try_emplace(key, own).first->second;
}

}  // namespace tenfold

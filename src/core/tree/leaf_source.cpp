#include "core/tree/leaf_source.hpp"

#include <tenfold/error.hpp>

#include "base/fail.hpp"

namespace tenfold {

Tensor LeafSource::nested_sizes(const Leaf& leaf) {
  throw base::invalid_argument(where(leaf)).problem("not a nested tensor");
}

bool LeafSource::Identity::operator==(const Identity& other) const {
  return device == other.device && inode == other.inode && part == other.part &&
         offset_bytes == other.offset_bytes && size_bytes == other.size_bytes &&
         pieces == other.pieces;
}

LeafSource::Identity LeafSource::identity(const Leaf& leaf) {
  static_cast<void>(leaf);
  return {};
}

std::vector<Leaf> LeafSource::parts(const Leaf& leaf) const {
  static_cast<void>(leaf);
  return {};
}

}  // namespace tenfold

#include "core/leaf_source.hpp"

#include <tenfold/error.hpp>

namespace tenfold {

Tensor LeafSource::nested_sizes(const Leaf& leaf) {
  throw Error(ErrorCode::invalid_argument, where(leaf) + ": not a nested tensor");
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

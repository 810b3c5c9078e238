#include "io/write_order.hpp"

#include <algorithm>
#include <cstdint>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace tenfold {
namespace {

/// The bytes from the first element of a target to its last; between them may lie bytes of others.
struct Extent {
  std::uintptr_t begin;
  std::uintptr_t end;
  std::size_t copy;
};

Extent extent_of(const Tensor& to, std::size_t copy) {
  std::uint64_t last = 0;  // a Tensor lies inside its buffer, so this cannot overflow
  for (std::size_t dim = 0; dim < to.shape().size(); ++dim) {
    last += static_cast<std::uint64_t>(to.shape()[dim] - 1) *
            static_cast<std::uint64_t>(to.strides()[dim]);
  }
  const auto begin = reinterpret_cast<std::uintptr_t>(to.raw_data());
  return {begin, begin + (last + 1) * to.itemsize(), copy};
}

std::vector<Extent> sorted_extents(const std::vector<LeafCopy>& copies) {
  std::vector<Extent> extents;
  extents.reserve(copies.size());
  for (std::size_t i = 0; i < copies.size(); ++i) {
    if (copies[i].to.numel() != 0) extents.push_back(extent_of(copies[i].to, i));
  }
  std::ranges::sort(extents, {},
                    [](const Extent& extent) { return std::pair(extent.begin, extent.copy); });
  return extents;
}

/// The copies of a group in their order, without those that a later one overwrites in full.
Wave without_overwritten(const std::vector<LeafCopy>& copies, Wave group) {
  std::ranges::sort(group, std::greater<>());
  std::set<std::tuple<std::byte*, std::size_t, Shape, Shape>> seen;
  std::erase_if(group, [&](std::size_t i) {
    const Tensor& to = copies[i].to;
    return !seen.emplace(to.raw_data(), to.itemsize(), to.shape(), to.strides()).second;
  });
  std::ranges::reverse(group);
  return group;
}

}  // namespace

std::vector<Wave> write_order(const std::vector<LeafCopy>& copies) {
  const std::vector<Extent> extents = sorted_extents(copies);
  std::vector<Wave> waves;
  for (std::size_t first = 0; first < extents.size();) {
    Wave group;
    std::uintptr_t end = extents[first].end;
    while (first < extents.size() && (group.empty() || extents[first].begin < end)) {
      end = std::max(end, extents[first].end);
      group.push_back(extents[first++].copy);
    }
    if (group.size() > 1) group = without_overwritten(copies, std::move(group));
    if (waves.size() < group.size()) waves.resize(group.size());
    for (std::size_t i = 0; i < group.size(); ++i) waves[i].push_back(group[i]);
  }
  for (Wave& wave : waves) std::ranges::sort(wave);
  return waves;
}

}  // namespace tenfold

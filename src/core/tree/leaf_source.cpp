#include "core/tree/leaf_source.hpp"

#include <bit>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "os/fs/file.hpp"

namespace tenfold {

StoredRange StoredRange::in(const os::FileInfo& file, std::uint64_t offset_bytes,
                            std::uint64_t size_bytes) {
  if (file.inode == 0) return {};
  return {.device = file.device,
          .inode = file.inode,
          .offset_bytes = offset_bytes,
          .size_bytes = size_bytes};
}

Tensor LeafSource::nested_sizes(const Leaf& leaf) {
  throw base::invalid_argument(where(leaf)).problem("not a nested tensor");
}

StoredRange LeafSource::identity(const Leaf& leaf) {
  static_cast<void>(leaf);
  return {};
}

std::vector<Leaf> LeafSource::parts(const Leaf& leaf) const {
  static_cast<void>(leaf);
  return {};
}

}  // namespace tenfold

std::size_t std::hash<tenfold::StoredRange>::operator()(
    const tenfold::StoredRange& range) const noexcept {
  constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15;
  std::uint64_t mixed = 0;
  const auto mix = [&](std::uint64_t word) { mixed = (std::rotl(mixed, 23) ^ word) * kOdd; };
  mix(range.device);
  mix(range.inode);
  mix(range.part);
  mix(range.offset_bytes);
  mix(range.size_bytes);
  for (const tenfold::StoredRange& piece : range.pieces) mix((*this)(piece));
  return static_cast<std::size_t>(mixed);
}

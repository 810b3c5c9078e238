#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <tenfold/buffer.hpp>
#include <tenfold/dtype.hpp>

#include "core/tree/leaf_source.hpp"

namespace tenfold::detail::formats::torch_file {

/// The location of a contiguous tensor in a storage.
struct StorageRange {
  std::size_t storage = 0;  ///< index of the storage
  std::uint64_t begin = 0;  ///< offset in the storage, in bytes
  std::uint64_t size_bytes = 0;
};

/// The storages of a file of torch.save: byte ranges, which several tensors may share. Also the
/// LeafSource of the contiguous tensors, whose locations are appended to `ranges` while the tree is
/// built.
class Storages : public LeafSource {
 public:
  std::vector<StorageRange> ranges;  ///< indexed by the position of the leaf

  /// Returns the index of the storage with this key; nullopt if there is none.
  virtual std::optional<std::size_t> find(std::string_view key) const = 0;
  virtual std::uint64_t size_bytes(std::size_t storage) const = 0;
  /// Returns all bytes of a storage, aligned to 16 bytes. Calls with the same storage return the
  /// same memory.
  virtual Buffer bytes(std::size_t storage) = 0;

  Buffer map(const Leaf& leaf) override {
    const StorageRange& range = range_of(leaf);
    if (range.size_bytes == 0) return {};
    return bytes(range.storage)
        .slice(static_cast<std::size_t>(range.begin), static_cast<std::size_t>(range.size_bytes));
  }

  Part map_storage(const Leaf& leaf) override {
    const StorageRange& range = range_of(leaf);
    return {bytes(range.storage), range.begin};
  }

 protected:
  const StorageRange& range_of(const Leaf& leaf) const {
    return ranges[static_cast<std::size_t>(position_of(leaf))];
  }
};

}  // namespace tenfold::detail::formats::torch_file

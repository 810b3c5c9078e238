#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "dict/index.hpp"
#include "dict/keys.hpp"
#include "os/fs/directory.hpp"

namespace tenfold {

/// Receives the bytes of a new index in consecutive runs. Offset 0 starts a new attempt.
using DictSink = std::function<void(std::uint64_t offset_bytes, std::span<const std::byte>)>;

struct DictBuildOptions {
  DuplicateKeys duplicates = DuplicateKeys::error;
  double load = kDictBuiltLoad;
  std::uint64_t room = 0;  ///< reserve slots for this many more keys
  /// Folder for the unnamed spill file of entries that do not fit in memory; null: no spill file.
  os::Directory* spill = nullptr;
  /// With `spill`, the number of entries (of 16 bytes) in memory at which they are spilled.
  std::size_t most_in_memory = std::size_t{4} << 20;
  Monitor* monitor = nullptr;
};

/// Builds the index of `keys`. Among rows with the same key, the last is the key's row and the
/// others are superseded. Hashes are sorted partition by partition, so that the index is written
/// sequentially. With a spill file, memory holds at most `most_in_memory` entries and one of 256
/// partitions. Returns the number of superseded rows.
///
/// Throws Error(invalid_argument) with a duplicate key and its rows (DuplicateKeys::error), or if
/// there are more than kDictMaxRows rows and reserved keys; Error(corrupt) if the end offsets of
/// keys are invalid; Error(unsupported) if too many hashes are equal.
std::uint64_t build_dict_index(const StoredKeys& keys, const DictBuildOptions& options,
                               const DictSink& sink);

/// Builds the index in memory; the last row of a duplicate key is the key's row.
Buffer build_dict_index_in_memory(const StoredKeys& keys);

}  // namespace tenfold

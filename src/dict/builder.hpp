#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "dict/index.hpp"
#include "dict/keys.hpp"
#include "os/fs/directory.hpp"

namespace tenfold {

/// Receives the bytes of a new index at ascending offsets. A call with offset 0 starts the index
/// anew: discard all bytes received before.
using DictSink = std::function<void(std::uint64_t offset_bytes, std::span<const std::byte>)>;

struct DictBuildOptions {
  DuplicateKeys duplicates = DuplicateKeys::error;
  double load = kDictBuiltLoad;  ///< load factor: (rows + `room`) / slots
  std::uint64_t room = 0;        ///< reserve slots for this many more keys
  /// Folder for the unnamed spill file of entries beyond `most_in_memory`; null: no spill file, all
  /// entries stay in memory.
  os::Directory* spill = nullptr;
  /// With `spill`: when memory holds this many entries (16 bytes each), they are spilled.
  std::size_t most_in_memory = std::size_t{4} << 20;
  Monitor* monitor = nullptr;
};

/// Builds the index of `keys`. If several rows have the same key, the index points to the last of
/// them, and the earlier ones are superseded. Hashes are sorted partition by partition, so that the
/// index is written sequentially. With a spill file, memory holds at most `most_in_memory` entries,
/// and the partition (one of 256) that is being sorted. Returns the number of superseded rows.
///
/// Throws Error(invalid_argument) if rows and `room` together exceed kDictMaxRows, or, with
/// DuplicateKeys::error, for a duplicate key, naming the key and its rows; Error(corrupt) if the
/// end offsets of keys are invalid; Error(unsupported) if too many hashes are equal.
std::uint64_t build_dict_index(const StoredKeys& keys, const DictBuildOptions& options,
                               const DictSink& sink);

/// Builds the index in memory. If several rows have the same key, the index points to the last of
/// them.
Buffer build_dict_index_in_memory(const StoredKeys& keys);

}  // namespace tenfold

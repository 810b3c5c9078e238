#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "dict/index.hpp"
#include "dict/keys.hpp"
#include "os/fs/directory.hpp"

namespace tenfold {

/// Takes the bytes of an index that is being made, one run after the other. Offset 0 begins anew.
using DictSink = std::function<void(std::uint64_t offset_bytes, std::span<const std::byte>)>;

struct DictBuildOptions {
  DuplicateKeys duplicates = DuplicateKeys::error;
  double load = kDictBuiltLoad;
  std::uint64_t room = 0;  ///< for keys to come
  /// Where what does not fit into memory lies meanwhile, in a file without a name; null: it stays
  /// in memory.
  os::Directory* spill = nullptr;
  std::size_t most_in_memory = std::size_t{4} << 20;  ///< keys, 16 bytes each
  Monitor* monitor = nullptr;
};

/// Makes the index of `keys`. Of rows with one key the last is the key's, the others are dead.
/// Bounded memory: hashes are sorted part by part, so that the index is written from its start to
/// its end. Returns the number of dead rows. Throws Error(invalid_argument) naming a key that comes
/// twice and its rows (DuplicateKeys::error), Error(corrupt) where the ends of keys make no sense.
std::uint64_t build_dict_index(const StoredKeys& keys, const DictBuildOptions& options,
                               const DictSink& sink);

/// The same in memory.
Buffer build_dict_index_in_memory(const StoredKeys& keys);

}  // namespace tenfold

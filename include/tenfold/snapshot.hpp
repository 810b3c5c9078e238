#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tenfold/io.hpp>

namespace tenfold {

/// How a snapshot is written. What save() can say too means the same here.
struct SnapshotOptions {
  bool durable = true;
  bool checksums = true;
  int num_threads = 0;
  bool overwrite = true;
  /// Globs over paths like "model/encoder/weight": entries that torchsnapshot may hand to any rank.
  std::vector<std::string> replicated{};
  std::uint64_t slab_bytes = std::uint64_t{128} << 20;   ///< tensors below this share files
  std::uint64_t chunk_bytes = std::uint64_t{512} << 20;  ///< tensors above this are cut
  Monitor* monitor = nullptr;
};

/// Saves a tree as a snapshot of world size 1, which torchsnapshot 0.1.0 restores: the keys of the
/// root are those of its app_state. As save() with the format "snapshot".
TENFOLD_API Path save_snapshot(const TensorDict& tree, const Path& path,
                               const SnapshotOptions& options = {});

/// The index of the snapshot at `path`, as JSON text: {"version", "world_size", "manifest": {path:
/// entry}}, paths beginning with the rank. Throws Error(file_not_found), Error(corrupt).
TENFOLD_API std::string snapshot_metadata(const Path& path);

}  // namespace tenfold

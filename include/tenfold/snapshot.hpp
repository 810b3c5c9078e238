#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tenfold/io.hpp>

namespace tenfold {

/// Options of save_snapshot(). Those that save() has as well mean the same.
struct SnapshotOptions {
  bool durable = true;    ///< fsynced when the call returns
  bool checksums = true;  ///< store them with the data
  int num_threads = 0;    ///< 0: min(8, cores)
  bool overwrite = true;  ///< false: Error(io) with errno EEXIST if `path` exists
  /// Globs over paths like "model/encoder/weight": entries that torchsnapshot may give to any rank.
  std::vector<std::string> replicated{};
  std::uint64_t slab_bytes = std::uint64_t{128} << 20;   ///< tensors below this share files
  std::uint64_t chunk_bytes = std::uint64_t{512} << 20;  ///< tensors above this are split
  Monitor* monitor = nullptr;                            ///< observes the call
};

/// Saves a tree as a snapshot of world size 1, which torchsnapshot 0.1.0 can restore. The keys of
/// the root are those of its app_state. Equivalent to save() with the format "snapshot".
TENFOLD_API Path save_snapshot(const TensorDict& tree, const Path& path,
                               const SnapshotOptions& options = {});

/// Returns the index of the snapshot at `path` as JSON: {"version", "world_size", "manifest":
/// {path: entry}}, where paths begin with the rank. Throws Error(file_not_found), Error(corrupt).
TENFOLD_API std::string snapshot_metadata(const Path& path);

}  // namespace tenfold

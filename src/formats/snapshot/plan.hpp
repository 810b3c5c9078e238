#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <tenfold/snapshot.hpp>
#include <tenfold/tensordict.hpp>

#include "formats/shared/zip_archive.hpp"
#include "formats/snapshot/manifest.hpp"

namespace tenfold::detail::formats::snapshot {

/// A range of a tensor's contiguous bytes, and its destination in a file.
struct Placement {
  Leaf leaf;
  std::uint64_t leaf_offset_bytes = 0;
  std::uint64_t size_bytes = 0;
  std::uint64_t file_offset_bytes = 0;
};

/// A file to be written: raw tensors, or one object of torch.save.
struct DataFile {
  std::string location;                 ///< path, relative to the folder of the snapshot
  std::uint64_t size_bytes = 0;         ///< of raw tensors; 0 for an object
  std::vector<Placement> parts;         ///< raw tensors
  std::vector<ZipArchiveEntry> object;  ///< records of the file of torch.save; empty for tensors
};

/// The content of a snapshot, or of the part that one rank writes.
struct Plan {
  Manifest manifest;
  std::vector<DataFile> files;
  std::string notes;            ///< what the manifest cannot express (tree_notes.hpp); may be empty
  std::uint64_t num_bytes = 0;  ///< total size of the tensors to be written
};

/// Which ranks write the entries that several ranks have. Paths are paths of the manifest without
/// the rank.
struct Assignment {
  /// For each replicated entry, the rank that writes it or, if it is chunked, the rank that writes
  /// each chunk.
  std::map<std::string, std::vector<std::int64_t>, std::less<>> replicated;
  struct SharedBox {
    Shape offsets;
    Shape sizes;
    std::int64_t rank = 0;  ///< the one that writes the box
  };
  /// For each sharded tensor, the boxes that several ranks have.
  std::map<std::string, std::vector<SharedBox>, std::less<>> boxes;
};

/// A rank that writes its part of a snapshot; by default the only rank.
struct PlannedRank {
  std::int64_t rank = 0;
  std::int64_t world_size = 1;
  std::vector<SnapshotShards> shards{};  ///< the sharded tensors in the tree
  /// If not null, the rank writes replicated entries and shared boxes only as assigned. If null,
  /// the rank writes everything that it has, and entries that match the globs
  /// SnapshotOptions::replicated are marked as replicated.
  const Assignment* assignment = nullptr;
};

/// Returns the path of an entry in the manifest, without the rank.
std::string path_of(const KeyPath& key);

/// Plans the files of a snapshot as torchsnapshot does:
///
/// - Small tensors are packed into slabs: files of at most SnapshotOptions::slab_bytes bytes. Each
///   tensor begins at a multiple of 64 bytes (torchsnapshot uses no padding).
/// - Other tensors get separate files. Large ones are split along dimension 0 into several files.
/// - Aliases (tensors that share storage) share files if torchsnapshot stores their dtype raw. If
///   they are split, they must also have the same shape and dtype, and the same ranks must write
///   their chunks. Split shards never share files.
/// - Long bytes objects, and values that torchsnapshot pickles, become files of torch.save. These
///   are None, tuples, complex tensors, tensors of dtypes that torchsnapshot has no name for, ...
/// - If there are several ranks, the path of each file contains the number of the rank that writes
///   it, so that ranks never write the same file.
///
/// Throws Error(unsupported), naming the key, for entries that a snapshot cannot store, and
/// Error(invalid_argument) if PlannedRank::shards does not match the tree. Also throws like
/// tree_notes_of(). Reads no tensor.
Plan plan_snapshot(const TensorDict& tree, const SnapshotOptions& options,
                   const PlannedRank& rank = {});

}  // namespace tenfold::detail::formats::snapshot

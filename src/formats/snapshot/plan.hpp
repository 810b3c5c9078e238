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
  std::string location;
  std::uint64_t size_bytes = 0;  ///< of raw bytes
  std::vector<Placement> parts;
  std::vector<ZipArchiveEntry> object;  ///< its records; empty for raw bytes
};

struct Plan {
  Manifest manifest;
  std::vector<DataFile> files;
  std::string notes;  ///< what the manifest cannot express (tree_notes.hpp); may be empty
  std::uint64_t num_bytes = 0;
};

/// The ranks that write shared entries. Paths are those of the manifest, without the rank.
struct Assignment {
  /// For each replicated entry, the ranks that write its chunks, or the rank that writes it.
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
  std::vector<SnapshotShards> shards{};
  /// If null, everything that the rank has is planned, and entries that match the globs are marked
  /// as replicated.
  const Assignment* assignment = nullptr;
};

/// Returns the path of an entry in the manifest, without rank.
std::string path_of(const KeyPath& key);

/// Plans files like those of torchsnapshot. Small tensors are packed into slabs, each at a multiple
/// of 64 bytes; others get separate files, and are split along dimension 0 if they are large.
/// Aliases of a dtype that torchsnapshot stores raw share a file, unless they are split and differ
/// in shape, dtype or the ranks that write their chunks. Values that torchsnapshot pickles, such as
/// None, tuples, complex tensors and dtypes that it has no name for, become files of torch.save.
/// Files of several ranks have different names: all are below folders with the number of the rank.
/// Throws Error(unsupported), naming the key, for entries that a snapshot cannot store. Throws
/// Error(invalid_argument) for PlannedRank::shards that do not match the tree, and like
/// tree_notes_of(). Reads no tensor.
Plan plan_snapshot(const TensorDict& tree, const SnapshotOptions& options,
                   const PlannedRank& rank = {});

}  // namespace tenfold::detail::formats::snapshot

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tenfold/snapshot.hpp>
#include <tenfold/tensordict.hpp>

#include "formats/shared/zip_archive.hpp"
#include "formats/snapshot/manifest.hpp"

namespace tenfold::detail::formats::snapshot {

/// A part of a tensor's contiguous bytes, and where in a file they go.
struct Placement {
  Leaf leaf;
  std::uint64_t leaf_offset_bytes = 0;
  std::uint64_t size_bytes = 0;
  std::uint64_t file_offset_bytes = 0;
};

/// A file that is going to be written: tensors as they are, or one object of torch.save.
struct DataFile {
  std::string location;
  std::uint64_t size_bytes = 0;  ///< of raw bytes
  std::vector<Placement> parts;
  std::vector<ZipArchiveEntry> object;  ///< its records; empty for raw bytes
};

struct Plan {
  Manifest manifest;
  std::vector<DataFile> files;
  std::string notes;  ///< of what the manifest cannot say (tree_notes.hpp); may be empty
  std::uint64_t num_bytes = 0;
};

/// Tensors in files of torchsnapshot's kinds: small ones side by side in slabs, each at a multiple
/// of 64; others in files of their own, cut along dimension 0 where they are large. Tied tensors
/// are stored once. What torchsnapshot pickles (None, tuples, complex tensors, dtypes that it has
/// no name for) becomes a file of torch.save. Throws Error(unsupported), naming the key, for what a
/// snapshot cannot hold. Reads no tensor.
Plan plan_snapshot(const TensorDict& tree, const SnapshotOptions& options);

}  // namespace tenfold::detail::formats::snapshot

#pragma once

#include <cstdint>
#include <string>
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

/// Assigns tensors to files of torchsnapshot's kinds: small ones share slabs, aligned to 64; others
/// have their own files, split along dimension 0 if they are large. Aliases are stored once.
/// Objects that torchsnapshot pickles (None, tuples, complex tensors, dtypes that it has no name
/// for) become files of torch.save. Throws Error(unsupported), naming the key, for what a snapshot
/// cannot store. Reads no tensor.
Plan plan_snapshot(const TensorDict& tree, const SnapshotOptions& options);

}  // namespace tenfold::detail::formats::snapshot

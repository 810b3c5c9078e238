#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/io.hpp>
#include <tenfold/value.hpp>

#include "core/notes/notes.hpp"
#include "os/fs/directory.hpp"

namespace tenfold::detail::formats {

// The file `metadata.json` of a folder that several processes wrote in a layout of
// torch.distributed.checkpoint. It stores what the other files of the folder cannot store, or could
// store only in a pickle.
//
//   {"format": "tenfold.distributed", "version": 1, "layout": "shards",
//    "files": ["shard-00001-model-00001-of-00001.safetensors", ...], "checksums": true,
//    "tensors": [["model.w", "float32", [10, 6], [[0, [0, 0], [3, 6]], [1, [3, 0], [7, 6]]]], ...],
//    "tree": {"model": {"entries": {"w": 0}}, "step": {"value": 7}},
//    "notes": "...", "tree_notes": "...", "tenfold_xxh3": "<16 hexadecimal digits>"}
//
// A tensor is an array of name, dtype, shape and chunks. A chunk is an array of the position of its
// file in "files", offsets and sizes. In "tree", a number is the position of a tensor in "tensors".
// "notes" and "tree_notes" are documents of core/notes/notes.hpp and tree_notes.hpp, as strings.
// "tenfold_xxh3" is the XXH3 of the document with zeros in place of its 16 digits.

inline constexpr std::string_view kManifestName = "metadata.json";
inline constexpr std::string_view kShardsLayout = "shards";
inline constexpr std::string_view kTorchLayout = "torch";

/// A tensor of the manifest. Together, its chunks contain all elements.
struct ManifestTensor {
  /// A rectangular part of a tensor, stored in one file. Offsets and sizes are in elements.
  struct Chunk {
    std::size_t file = 0;  ///< position in Manifest::files
    Shape offsets;
    Shape sizes;
  };
  std::string name;
  DType dtype = DType::float32;
  Shape shape;
  std::vector<Chunk> chunks;
};

/// The content of a `metadata.json`.
struct Manifest {
  std::string layout;              ///< kShardsLayout or kTorchLayout
  std::vector<std::string> files;  ///< each the name of a file in the folder
  bool has_checksums = false;      ///< the files have checksums of their tensors
  std::vector<ManifestTensor> tensors;
  Value tree;              ///< the member "tree": an object
  Notes notes;             ///< the parsed member "notes"
  std::string tree_notes;  ///< the member "tree_notes"; "" if it is missing
};

/// Returns the text of the manifest of `tree`. `tensors` describes the tensors of `tree` in the
/// order of for_each_leaf. Throws Error(invalid_argument) if a string is not UTF-8 (lone surrogates
/// are allowed), the errors of require_valid_info(), and Error(unsupported) if the tree is nested
/// too deeply for JSON.
std::string write_manifest(const std::string& layout, const std::vector<std::string>& files,
                           bool has_checksums, const std::vector<ManifestTensor>& tensors,
                           const TensorDict& tree);

/// True if the folder has a manifest of `layout`, or of any layout if `layout` is empty. Reads only
/// the first 128 bytes of the manifest, so the rest may be damaged. False if `metadata.json` is
/// missing or not a regular file.
bool has_manifest(const os::Directory& folder, std::string_view layout = {});

/// Reads the manifest of a folder, without comparing its checksum. Returns nullopt if the folder
/// has no `metadata.json` that tenfold wrote. Throws Error(corrupt) for an invalid manifest, and
/// Error(unsupported) for a newer version of the manifest or of its notes.
std::optional<Manifest> read_manifest(const os::Directory& folder);

/// Builds the tree that a manifest describes. `leaf_of` returns the leaf of the tensor at an index
/// of Manifest::tensors, and is called at most once for each; `where` names the manifest. Throws
/// Error(corrupt) for an invalid "tree", Error(unsupported) for tree notes of a newer version, and
/// what `leaf_of` throws.
TensorDict manifest_tree(const Manifest& manifest, const std::string& where,
                         const std::function<Leaf(std::size_t)>& leaf_of);

/// Compares the manifest with its checksum. Adds a problem to the report if they differ or the
/// checksum is missing. Does nothing if the folder has no manifest of tenfold.
void verify_manifest(const os::Directory& folder, VerifyReport& report);

}  // namespace tenfold::detail::formats

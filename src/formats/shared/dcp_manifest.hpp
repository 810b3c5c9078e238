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

// `metadata.json` of a folder that several processes wrote in a layout of
// torch.distributed.checkpoint. It stores what the other files cannot express, or would express
// only in a pickle.
//
//   {"format": "tenfold.distributed", "version": 1, "layout": "shards",
//    "files": ["shard-00001-model-00001-of-00001.safetensors", ...], "checksums": true,
//    "tensors": [["model.w", "float32", [10, 6], [[0, [0, 0], [3, 6]], [1, [3, 0], [7, 6]]]], ...],
//    "tree": {"model": {"entries": {"w": 0}}, "step": {"value": 7}},
//    "notes": "...", "tree_notes": "...", "tenfold_xxh3": "<16 hexadecimal digits>"}
//
// A tensor has a name, a dtype, a shape and chunks. A chunk has the position of its file in
// "files", offsets and sizes. In the tree a tensor is its position in "tensors". Notes are those of
// core/notes/notes.hpp and tree_notes.hpp, as strings. The checksum is that of the document with
// zeros for its digits.

inline constexpr std::string_view kManifestName = "metadata.json";
inline constexpr std::string_view kShardsLayout = "shards";
inline constexpr std::string_view kTorchLayout = "torch";

struct ManifestTensor {
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

struct Manifest {
  std::string layout;
  std::vector<std::string> files;  ///< each the name of a file in the folder
  bool has_checksums = false;      ///< the files have checksums of their tensors
  std::vector<ManifestTensor> tensors;
  Value tree;  ///< an object
  Notes notes;
  std::string tree_notes;
};

/// Formats the manifest of a tree whose tensors, in the order of for_each_leaf, are `tensors`.
/// Throws Error(invalid_argument) for strings that are not UTF-8 (lone surrogates are allowed) and
/// like require_valid_info(), and Error(unsupported) for a tree that is nested too deep for JSON.
std::string write_manifest(const std::string& layout, const std::vector<std::string>& files,
                           bool has_checksums, const std::vector<ManifestTensor>& tensors,
                           const TensorDict& tree);

/// True if the folder has a manifest of that layout; empty: of any layout. Reads only its first
/// bytes, so the rest may be damaged. False if `metadata.json` is not a regular file.
bool has_manifest(const os::Directory& folder, std::string_view layout = {});

/// Reads the manifest of a folder. Returns nullopt if the folder has no `metadata.json` that
/// tenfold wrote. Throws Error(corrupt), and Error(unsupported) for a newer version of the manifest
/// or of its notes.
std::optional<Manifest> read_manifest(const os::Directory& folder);

/// Builds the tree that a manifest describes. `leaf_of` returns the tensor at a position in
/// Manifest::tensors; `where` names the manifest. Throws Error(corrupt), and Error(unsupported) for
/// tree notes of a newer version.
TensorDict manifest_tree(const Manifest& manifest, const std::string& where,
                         const std::function<Leaf(std::size_t)>& leaf_of);

/// Compares the manifest with its checksum, and adds a difference to the report. Does nothing if
/// the folder has no manifest of tenfold.
void verify_manifest(const os::Directory& folder, VerifyReport& report);

}  // namespace tenfold::detail::formats

#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/io.hpp>

namespace tenfold {

using FlatMetadata = std::map<std::string, std::string, std::less<>>;

/// The tensors of a safetensors file as its header lists them: without nesting or aliases, in the
/// order of their bytes.
struct FlatSafetensors {
  struct Entry {
    std::string name;
    std::string dtype;  ///< the name in the header: "F32"
    Shape shape;        ///< the shape in the header, which counts 4-bit numbers for F4
  };
  TensorDict tree;             ///< a dict with the tensors' names as keys
  std::vector<Entry> entries;  ///< in the order of their bytes
  FlatMetadata metadata;       ///< `__metadata__` without tenfold's checksums
};

/// Opens one file lazily. Throws like open().
FlatSafetensors open_flat_safetensors(const Path& path);

/// Like open_flat_safetensors(), but for a whole file in memory. Each tensor gets its own memory.
/// Throws Error(corrupt) if the bytes are not a safetensors file.
FlatSafetensors read_flat_safetensors(std::span<const std::byte> bytes, std::string_view where);

/// Saves the tensors of `tree` under their keys, with `metadata`. `tree` must have no child nodes
/// and no JSON values. Omits checksums in `metadata`; adds new ones if options.checksums is set.
/// Stores aliases as separate copies. Atomic, like save(). Ignores options.format. Before anything
/// is written, throws Error(unsupported), naming the key, for entries that the format cannot store.
/// Also throws Error(invalid_argument) if `metadata` is not UTF-8, or if its keys "tensordict" or
/// "tenfold" describe a tree of other tensors. Throws Error(io) with errno EEXIST if `path` exists
/// and options.overwrite is false.
void save_flat_safetensors(const TensorDict& tree, const FlatMetadata& metadata, const Path& path,
                           const SaveOptions& options);

/// Returns the bytes that save_flat_safetensors() writes if options.checksums is false.
std::vector<std::byte> flat_safetensors_bytes(const TensorDict& tree, const FlatMetadata& metadata);

}  // namespace tenfold

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

/// A safetensors file as its header lists it: no nesting, no aliases, no order but that of bytes.
struct FlatSafetensors {
  struct Entry {
    std::string name;
    std::string dtype;  ///< as the header spells it: "F32"
    Shape shape;        ///< as the header has it; the last dimension of F4 is not halved
  };
  TensorDict tree;             ///< a dict; its keys are the names
  std::vector<Entry> entries;  ///< in the order of their bytes
  FlatMetadata metadata;       ///< `__metadata__` without our checksums
};

/// Opens one file lazily. Throws as open() does.
FlatSafetensors open_flat_safetensors(const Path& path);

/// The same of a whole file in memory; every tensor gets memory of its own.
/// Throws Error(corrupt) if the bytes are no safetensors file.
FlatSafetensors read_flat_safetensors(std::span<const std::byte> bytes, std::string_view where);

/// Saves the tensors of `tree`, which has no nodes and no values, under their keys, with exactly
/// this metadata and, if options.checksums, ours. Leaves that share memory are stored once each.
/// Atomic, as save(). options.format is ignored. Throws Error(unsupported), naming the key, for
/// what the format cannot hold; nothing has been written then.
void save_flat_safetensors(const TensorDict& tree, const FlatMetadata& metadata, const Path& path,
                           const SaveOptions& options);

/// The bytes that save_flat_safetensors() writes without checksums.
std::vector<std::byte> flat_safetensors_bytes(const TensorDict& tree, const FlatMetadata& metadata);

}  // namespace tenfold

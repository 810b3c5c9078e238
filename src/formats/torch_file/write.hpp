#pragma once

#include <tenfold/tensordict.hpp>

#include "formats/format.hpp"

namespace tenfold::detail::formats::torch_file {

/// Throws Error(unsupported), naming the key, for an entry that write_tree() cannot store, and like
/// tree_notes_of().
void check_tree(const TensorDict& tree);

/// Creates or replaces the file at `path`. The file is an archive that
/// torch.load(weights_only=True) reads, with or without mmap=True. Its records are data.pkl,
/// byteorder, data/0 ... and version, each uncompressed, aligned to 64 bytes, and with its CRC-32.
/// The record `.format_version` is omitted: if it existed, torch would assume the order of headers
/// that torch itself writes. With request.notes, the record tenfold.json (tree_notes.hpp) stores
/// what a pickle of dicts and lists cannot express. Throws like check_tree() and FileReplacement.
void write_tree(const TensorDict& tree, const Path& path, const WriteRequest& request);

}  // namespace tenfold::detail::formats::torch_file

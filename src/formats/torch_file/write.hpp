#pragma once

#include <tenfold/tensordict.hpp>

#include "formats/format.hpp"

namespace tenfold::detail::formats::torch_file {

/// Throws Error(unsupported), naming the key, for what write_torch_file refuses.
void check_tree(const TensorDict& tree);

/// Replaces the file at `path` by an archive that torch.load(weights_only=True) reads, mapped or
/// not: data.pkl, byteorder, data/0 ..., version, each stored, at a multiple of 64, with its true
/// CRC-32. There is no `.format_version`: it would promise torch's own order of headers. What a
/// pickle of dicts and lists cannot say is told by one more record, tenfold.json (tree_notes.hpp).
void write_tree(const TensorDict& tree, const Path& path, const WriteRequest& request);

}  // namespace tenfold::detail::formats::torch_file

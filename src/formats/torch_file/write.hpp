#pragma once

#include <tenfold/tensordict.hpp>

#include "formats/format.hpp"

namespace tenfold::detail::formats::torch_file {

/// Throws Error(unsupported), naming the key, for an entry that write_tree() refuses. Throws
/// Error(invalid_argument) like tree_notes_of().
void check_tree(const TensorDict& tree);

/// Creates or replaces the file at `path`. It is an archive that torch.load(weights_only=True)
/// reads, mapped or not: data.pkl, byteorder, data/0 ..., version. Each is stored, aligned to 64
/// bytes, with its CRC-32. A record `.format_version` is omitted: with it, torch would assume its
/// own order of headers. With request.notes, the record tenfold.json (tree_notes.hpp) is added for
/// what a pickle of dicts and lists cannot express.
void write_tree(const TensorDict& tree, const Path& path, const WriteRequest& request);

}  // namespace tenfold::detail::formats::torch_file

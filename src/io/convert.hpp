#pragma once

#include <string>

#include <tenfold/io.hpp>

#include "formats/format.hpp"

namespace tenfold {

/// The format in which convert() writes `target`. Warns and throws as format_for_saving() and
/// refuse_shard_size() do.
const detail::formats::Format& format_for_converting(const Path& target,
                                                     const ConvertOptions& options);

/// Does the rest of convert() for a tree that is already open and selected: checks it, renames its
/// entries, casts its tensors and writes it. `source` is the name of the tree in messages.
ConvertReport convert_tree(TensorDict tree, const std::string& source,
                           const detail::formats::Format& format, const Path& target,
                           const ConvertOptions& options);

/// Throws Error(invalid_argument) if `target` is inside the folder `source`.
void refuse_inside(const Path& source, const Path& target);

}  // namespace tenfold

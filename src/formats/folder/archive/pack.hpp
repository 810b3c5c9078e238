#pragma once

#include <tenfold/io.hpp>

#include "formats/format.hpp"

namespace tenfold::detail::formats::folder {

/// Replaces the file at `archive` by an archive of all files of the folder but temporary ones,
/// unchanged. With a `deflate_level` above 0, files of tensors (is_leaf_file()) that become smaller
/// are deflated. Throws Error(invalid_argument) if there is no meta.json or if the archive would be
/// inside the folder, Error(unsupported) for a `%commit` in the folder or below it, symbolic links,
/// special files and folders nested too deep.
void pack_folder(const Path& folder, const Path& archive, int deflate_level,
                 const WriteRequest& request);

/// Replaces the folder at `folder` by the files of the archive, and checks each entry against the
/// CRC-32 in the directory. Nothing is changed if one is wrong. Throws like require_replaceable(),
/// Error(unsupported) for entries nested too deep.
void unpack_archive(const Path& archive, const Path& folder, const WriteRequest& request);

}  // namespace tenfold::detail::formats::folder

#pragma once

#include <tenfold/io.hpp>

#include "formats/format.hpp"

namespace tenfold::detail::formats::folder {

/// Writes an archive of all files of the folder, except temporary ones, and replaces the file at
/// `archive` by it. With a `deflate_level` above 0, files of tensors (is_leaf_file()) that become
/// smaller are deflated. Throws Error(invalid_argument) if the folder has no meta.json or if the
/// archive would be inside the folder. Throws Error(unsupported) if the folder or a folder below it
/// contains a `%commit`, a symbolic link or a special file, or if folders are nested too deep.
void pack_folder(const Path& folder, const Path& archive, int deflate_level,
                 const WriteRequest& request);

/// Replaces the folder at `folder` by the files of the archive. Throws Error(corrupt) if the CRC-32
/// of an entry differs from the one in the zip directory, Error(unsupported) for entries nested too
/// deep, and what Archive::open() and require_replaceable() throw; then the old folder stays.
void unpack_archive(const Path& archive, const Path& folder, const WriteRequest& request);

}  // namespace tenfold::detail::formats::folder

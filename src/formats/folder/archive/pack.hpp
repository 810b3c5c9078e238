#pragma once

#include <tenfold/io.hpp>

#include "formats/format.hpp"

namespace tenfold::detail::formats::folder {

/// Replaces the file at `archive` by an archive of all files of the folder but temporary ones,
/// unchanged. With a `deflate_level` above 0, tensors that become smaller are deflated. Throws
/// Error(invalid_argument) if there is no meta.json or if the archive would be inside the folder,
/// Error(unsupported) for a `%commit` in the folder, symbolic links, special files and folders
/// nested too deep.
void pack_folder(const Path& folder, const Path& archive, int deflate_level,
                 const WriteRequest& request);

/// Replaces the folder at `folder` by the files of the archive, and checks every CRC-32. Nothing is
/// changed if one is wrong.
void unpack_archive(const Path& archive, const Path& folder, const WriteRequest& request);

}  // namespace tenfold::detail::formats::folder

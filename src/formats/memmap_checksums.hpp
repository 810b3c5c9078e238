#pragma once

#include "os/directory.hpp"

namespace tenfold::memmap_folder {

/// Removes the lines of all tensors of the folder at `path` from its `%checksums`, and from those
/// of the saved trees it is a node of: their files are about to be written through. Each file is
/// replaced in one step, durably.
void drop_leaf_checksums(const os::Directory& folder, const os::Path& path);

}  // namespace tenfold::memmap_folder

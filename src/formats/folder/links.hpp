#pragma once

#include "os/fs/directory.hpp"

namespace tenfold::detail::formats::folder {

/// Refuses to write in place to files that other trees share by hard links: steps of a
/// CheckpointManager with `share_unchanged`, or copies by `cp -l`. Links within one tree are
/// aliases, and allowed. `folder`: a tree, or a node of one. Throws Error(io) (EACCES), naming a
/// file, if that file has links outside of the tree.
void refuse_shared_files(const os::Directory& folder);

}  // namespace tenfold::detail::formats::folder

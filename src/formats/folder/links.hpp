#pragma once

#include "os/fs/directory.hpp"

namespace tenfold::detail::formats::folder {

/// Throws Error(io) (EACCES), naming a file, if a file in `folder` has hard links outside of its
/// tree: a write in place would change other trees, too. Steps of a CheckpointManager with
/// `share_unchanged` and copies by `cp -l` have such links. Links within one tree are aliases, and
/// allowed. `folder` is the root of a tree or a node.
void refuse_shared_files(const os::Directory& folder);

}  // namespace tenfold::detail::formats::folder

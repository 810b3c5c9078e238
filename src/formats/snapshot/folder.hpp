#pragma once

#include <tenfold/snapshot.hpp>

#include "formats/snapshot/manifest.hpp"
#include "os/fs/directory.hpp"

namespace tenfold::detail::formats::snapshot {

/// The content of `.snapshot_metadata`. Throws Error(corrupt) if it is missing.
std::string read_metadata(const os::Directory& root);

/// Replaces `path`, which must be a snapshot or an empty folder, by a new snapshot.
void write_folder(const TensorDict& tree, const Path& path, const SnapshotOptions& options);

}  // namespace tenfold::detail::formats::snapshot

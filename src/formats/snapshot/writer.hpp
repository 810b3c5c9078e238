#pragma once

#include <tenfold/snapshot.hpp>

#include "formats/snapshot/plan.hpp"
#include "os/fs/directory.hpp"

namespace tenfold::detail::formats::snapshot {

/// Writes the files of a plan into an empty folder, the metadata last, and `%checksums` beside them
/// if asked for; torchsnapshot ignores files that its metadata does not name. Durable: all but the
/// folder itself is on the device when it returns.
void write_plan(const Plan& plan, os::Directory& root, const SnapshotOptions& options);

}  // namespace tenfold::detail::formats::snapshot

#pragma once

#include <tenfold/snapshot.hpp>

#include <string>
#include <vector>

#include "formats/shared/folder_checksums.hpp"
#include "formats/snapshot/manifest.hpp"
#include "formats/snapshot/plan.hpp"
#include "os/fs/directory.hpp"

namespace tenfold::detail::formats::snapshot {

/// The content of `.snapshot_metadata`. Throws Error(corrupt) if it is missing.
std::string read_metadata(const os::Directory& root);

/// Throws Error(invalid_argument) if there is a folder at `path` with files that are not those of a
/// snapshot: a new one would remove them.
void refuse_foreign(const Path& path);
/// The names of such files, the first few.
std::vector<std::string> foreign_in(const os::Directory& folder);

/// Writes the data files of a plan, of which the folder has none yet, and returns their checksums
/// if requested. If `durable`, the files and their folders are fsynced when it returns.
std::vector<ChecksumLine> write_data_files(const Plan& plan, const os::Directory& root,
                                           const SnapshotOptions& options);

/// Writes what describes a snapshot: notes, checksums, and last the metadata, which marks it as
/// complete for readers that go by that.
void write_documents(const Manifest& manifest, const std::string& notes,
                     std::vector<ChecksumLine> lines, const os::Directory& root,
                     const SnapshotOptions& options);

/// The tree of a snapshot with what its notes add; `for_new_rank`: see build_tree().
TensorDict tree_of(std::shared_ptr<const Manifest> manifest, const os::Directory& root,
                   const std::string& where, bool for_new_rank = false);

/// Replaces what is at `path`, which must be a snapshot or an empty folder, by a new snapshot.
void write_folder(const TensorDict& tree, const Path& path, const SnapshotOptions& options);

}  // namespace tenfold::detail::formats::snapshot

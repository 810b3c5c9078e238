#pragma once

#include <tenfold/snapshot.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "formats/shared/folder_checksums.hpp"
#include "formats/snapshot/manifest.hpp"
#include "formats/snapshot/plan.hpp"
#include "os/fs/directory.hpp"

namespace tenfold::detail::formats::snapshot {

/// Returns the content of `.snapshot_metadata` in `root`. Throws Error(corrupt) if it is missing or
/// larger than kMaxMetadataBytes.
std::string read_metadata(const os::Directory& root);

/// Throws Error(invalid_argument) if foreign_in() finds files in the folder at `path`, because a
/// new snapshot would remove them.
void require_replaceable(const Path& path);
/// Returns the paths, relative to `folder`, of its foreign files. If the folder has the metadata of
/// a snapshot, the foreign files are those that the metadata does not name, except the metadata,
/// notes and checksums themselves; otherwise all files are foreign. For a sub-folder that has only
/// foreign files, returns the path of the sub-folder instead. Ignores temporary files and folders
/// of saves.
std::vector<std::string> foreign_in(const os::Directory& folder);

/// Writes the data files of a plan into a folder that has none of them. Returns their checksums if
/// options.checksums is set. If options.durable is set, the files and the folders below `root` are
/// fsynced when the call returns.
std::vector<ChecksumLine> write_data_files(const Plan& plan, const os::Directory& root,
                                           const SnapshotOptions& options);

/// Writes the documents of a snapshot: the notes (if not empty), the checksums (if requested), and
/// last the metadata, because a reader treats a folder without metadata as incomplete. `lines` are
/// the checksums of the data files.
void write_documents(const Manifest& manifest, const std::string& notes,
                     std::vector<ChecksumLine> lines, const os::Directory& root,
                     const SnapshotOptions& options);

/// Builds the tree of a snapshot and applies its notes. `where` and `for_rank` are as for
/// build_tree(). Throws like apply_tree_notes().
TensorDict tree_of(std::shared_ptr<const Manifest> manifest, const os::Directory& root,
                   const std::string& where, std::optional<std::int64_t> for_rank = {});

/// Writes a snapshot to `path`, and replaces a snapshot or empty folder that is there. Ignores
/// SnapshotOptions::overwrite, which the caller checks. Throws like plan_snapshot(),
/// require_replaceable() and FolderReplacement.
void write_folder(const TensorDict& tree, const Path& path, const SnapshotOptions& options);

}  // namespace tenfold::detail::formats::snapshot

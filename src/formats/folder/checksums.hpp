#pragma once

#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "formats/shared/folder_checksums.hpp"
#include "os/fs/directory.hpp"
#include "os/fs/file.hpp"
#include "os/fs/lease.hpp"

namespace tenfold::detail::formats {
class FolderReplacement;
}  // namespace tenfold::detail::formats

namespace tenfold::detail::formats::folder {

/// The `%checksums` of a folder, locked against other writers until publish() or close().
class ChecksumsEdit {
 public:
  /// Opens, locks and parses the file, if there is one. Throws Error(io) (EBUSY) if another writer
  /// holds the lock for 10 seconds.
  ChecksumsEdit(const os::Directory& folder, const os::Path& path);

  /// False if the file is missing or damaged, and after publish() or close(). A damaged file has no
  /// valid checksums, and verify() reports it.
  bool is_whole() const noexcept { return file_.valid(); }
  /// The lines of the file. Requires is_whole().
  const std::vector<ChecksumLine>& lines() const noexcept { return lines_; }
  /// Replaces the file by one with `lines`, atomically and durably, then closes this object. Throws
  /// Error(io), also (ESTALE) if the folder was moved or replaced.
  void publish(const std::vector<ChecksumLine>& lines);
  /// Releases the lock without changing the file.
  void close() noexcept {
    lock_.reset();
    file_.close();
  }

 private:
  os::Directory folder_;
  os::Path path_;  ///< of the folder
  os::File file_;
  std::optional<os::WriterLock> lock_;
  std::vector<ChecksumLine> lines_;
};

/// Returns true if the file at `path`, relative to a folder, is about to change.
using ConcernsFile = std::function<bool(std::string_view path)>;

/// Removes lines from the `%checksums` of the folder at `path`, and from those of the saved trees
/// that contain the folder as a node: the lines of the files for which `concerns` returns true.
/// Each `%checksums` that has such lines is replaced atomically and durably. Throws Error(io):
/// (ESTALE) if a folder whose `%checksums` must be replaced was moved or replaced, (EBUSY) like
/// ChecksumsEdit.
void drop_checksums(const os::Directory& folder, const os::Path& path,
                    const ConcernsFile& concerns);
/// Removes the lines of all files of the folder at `path` from the `%checksums` of the saved trees
/// that contain the folder as a node, but not from its own `%checksums`.
void drop_checksums_above(const os::Path& path);
/// Calls replacement.publish(). If the folder may be a node of a saved tree, calls
/// drop_checksums_above() first.
void publish_folder(FolderReplacement& replacement, bool durable);

/// Prepares a folder whose tensors are about to be written through mappings: calls
/// announce_writes_in_place(), and drop_checksums() for the files of all tensors. Throws like
/// drop_checksums(). Throws Error(io), before it changes anything, if the folder was moved or
/// replaced (ESTALE), and like refuse_shared_files() (EACCES).
void drop_leaf_checksums(const os::Directory& folder, const os::Path& path);

}  // namespace tenfold::detail::formats::folder

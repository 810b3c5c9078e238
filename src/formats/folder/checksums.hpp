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
  /// Throws Error(io) (EBUSY) if another writer holds the lock for 10 seconds.
  ChecksumsEdit(const os::Directory& folder, const os::Path& path);

  /// False if the file is missing or damaged, and after close(). A damaged file has no valid
  /// checksums, and verify() reports it.
  bool is_whole() const noexcept { return file_.valid(); }
  const std::vector<ChecksumLine>& lines() const noexcept { return lines_; }
  /// Replaces the file atomically and durably, then closes this object. Throws Error(io) (ESTALE)
  /// if the folder was moved or replaced.
  void publish(const std::vector<ChecksumLine>& lines);
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

/// Returns true for the path of a file, relative to a folder, that is about to change.
using ConcernsFile = std::function<bool(std::string_view path)>;

/// Removes the lines of these files of the folder at `path` from its `%checksums`, and from those
/// of the enclosing saved trees: if the folder is a node, their `%checksums` have its lines. Each
/// is replaced atomically and durably. Throws Error(io): (ESTALE) if the folder was moved or
/// replaced, (EBUSY) like ChecksumsEdit.
void drop_checksums(const os::Directory& folder, const os::Path& path,
                    const ConcernsFile& concerns);
/// The same for all files of the folder, in the enclosing saved trees only.
void drop_checksums_above(const os::Path& path);
/// Calls replacement.publish(), and before it drop_checksums_above(), because the folder may be a
/// node of a saved tree.
void publish_folder(FolderReplacement& replacement, bool durable);

/// Calls drop_checksums() for all tensors, because they are about to be written through mappings,
/// and announce_writes_in_place(). Also throws Error(io) (EACCES) like refuse_shared_files(), with
/// all files unchanged.
void drop_leaf_checksums(const os::Directory& folder, const os::Path& path);

}  // namespace tenfold::detail::formats::folder

#pragma once

#include <optional>
#include <vector>

#include "formats/shared/folder_checksums.hpp"
#include "os/fs/directory.hpp"
#include "os/fs/file.hpp"
#include "os/fs/lease.hpp"

namespace tenfold::detail::formats::folder {

/// The `%checksums` of a folder, locked against others who change it.
class ChecksumsEdit {
 public:
  /// Throws Error(io) (EBUSY) if somebody holds it for long.
  ChecksumsEdit(const os::Directory& folder, const os::Path& path);

  /// False if there is none, or a damaged one: nothing in it vouches for anything, and verify
  /// reports it.
  bool is_whole() const noexcept { return file_.valid(); }
  const std::vector<ChecksumLine>& lines() const noexcept { return lines_; }
  /// Replaces it in one step, durably.
  void publish(const std::vector<ChecksumLine>& lines);
  void close() noexcept {
    lock_.reset();
    file_.close();
  }

 private:
  os::Path path_;
  os::File file_;
  std::optional<os::WriterLock> lock_;
  std::vector<ChecksumLine> lines_;
};

/// Removes the lines of all tensors of the folder at `path` from its `%checksums`, and from those
/// of the saved trees it is a node of: their files are about to be written through. Each file is
/// replaced in one step, durably. Throws Error(io) (EACCES), with all files as they were, if a file
/// is one of another tree, too.
void drop_leaf_checksums(const os::Directory& folder, const os::Path& path);

}  // namespace tenfold::detail::formats::folder

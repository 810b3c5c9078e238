#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "os/directory.hpp"

namespace tenfold::memmap_folder {

/// One folder of an opened tree. The root stays open; those below are opened relative to it when
/// they are needed and closed again when too many are open, so that a tree of any number of nodes
/// gets by with a few hundred descriptors. A folder that is opened again is the same one (device
/// and inode) as before, or it is an error. Thread-safe.
class FolderHandle : public std::enable_shared_from_this<FolderHandle> {
 public:
  /// Nodes deeper than this are refused.
  static constexpr std::size_t kMaxDepth = 512;

  /// Folders below the root that are kept open at once.
  static constexpr std::size_t kMaxOpen = 64;

  static std::shared_ptr<FolderHandle> root(os::Directory directory, const os::Path& path);

  /// The sub-folder of that name, or null if there is none (a file or a symlink is none).
  std::shared_ptr<FolderHandle> try_child(const std::string& name);

  std::shared_ptr<const os::Directory> directory();

  /// The path as the user knows it.
  const std::string& display() const noexcept { return display_; }

  /// True if the tree that was opened is no longer what its path names, or was removed.
  bool was_replaced();

  /// Throws Error(io): replaced since it was opened.
  [[noreturn]] void throw_replaced() const;

 private:
  struct Pool {
    std::mutex mutex;
    std::vector<std::shared_ptr<const os::Directory>> open;  ///< a ring: the oldest goes first
    std::size_t next = 0;
    std::shared_ptr<const os::Directory> root;
    os::Path root_path;
    os::FileInfo root_info;
  };

  FolderHandle() = default;
  void remember(std::shared_ptr<const os::Directory> directory);

  std::shared_ptr<Pool> pool_;
  std::shared_ptr<FolderHandle> parent_;  ///< null: the root
  std::string name_;
  std::string display_;
  std::size_t depth_ = 0;
  os::FileInfo info_;
  std::mutex mutex_;
  std::weak_ptr<const os::Directory> directory_;
};

}  // namespace tenfold::memmap_folder

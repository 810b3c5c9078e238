#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "formats/folder/files.hpp"
#include "os/fs/directory.hpp"

namespace tenfold::detail::formats::folder {

/// A folder of the file system. The root stays open. A folder below it is opened on demand,
/// relative to its parent. Only folders in use and the kMaxOpen most recently opened folders are
/// open, so that a tree of any size needs few descriptors. If a folder was removed or replaced
/// (device or inode differ), opening it again calls throw_replaced(). Thread-safe.
class FolderHandle final : public Folder, public std::enable_shared_from_this<FolderHandle> {
 public:
  /// Maximum number of recently used folders below the root that are kept open.
  static constexpr std::size_t kMaxOpen = 64;

  /// Returns the root for `directory`, which was opened at `path`. `locks` are held as long as any
  /// part of the tree is alive.
  static std::shared_ptr<FolderHandle> root(os::Directory directory, const os::Path& path,
                                            std::vector<os::Directory> locks = {});

  /// Returns the open folder; opens it again if it was closed. Throws like throw_replaced() if it
  /// was removed or replaced.
  std::shared_ptr<const os::Directory> directory();
  /// Returns the path relative to the root: "camera/lens", or "" for the root.
  std::string path_below_root() const;

  const std::string& display() const noexcept override { return display_; }
  /// Returns null for a file or a symlink.
  std::shared_ptr<Folder> try_child(const std::string& name) override;
  bool has_child(const std::string& name) override;
  std::unique_ptr<StoredFile> try_open(const std::string& name, bool for_writing) override;
  std::optional<StoredInfo> file_info(const std::string& name) override;
  std::optional<std::string> read_text(const std::string& name, std::uint64_t limit_bytes) override;
  void flush(const std::vector<MappedPart>& mapped, Monitor* monitor) override;
  bool may_grow() const noexcept override { return depth_ == 0; }
  bool was_replaced() override;
  [[noreturn]] void throw_replaced() const override;

 private:
  struct Pool {
    std::mutex mutex;
    std::vector<std::shared_ptr<const os::Directory>> open;  ///< a circular buffer
    std::size_t next = 0;                                    ///< index of the oldest, once full
    std::shared_ptr<const os::Directory> root;
    os::Path root_path;
    os::FileInfo root_info;
    std::vector<os::Directory> locks;
  };

  FolderHandle() = default;
  void remember(std::shared_ptr<const os::Directory> directory);

  std::shared_ptr<Pool> pool_;
  std::shared_ptr<FolderHandle> parent_;  ///< null for the root
  std::string name_;
  std::string display_;
  std::size_t depth_ = 0;
  os::FileInfo info_;
  std::mutex mutex_;
  std::weak_ptr<const os::Directory> directory_;
};

}  // namespace tenfold::detail::formats::folder

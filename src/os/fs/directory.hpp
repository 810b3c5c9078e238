#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "os/fs/file.hpp"

namespace tenfold::os {

/// The longest name of a file or folder on Linux, in bytes.
inline constexpr std::size_t kMaxNameBytes = 255;

/// An open folder; move-only. It refers to the same folder even if the folder is renamed or
/// replaced.
class Directory {
 public:
  Directory() = default;

  /// Opens a path given by the user: symlinks are followed. Throws Error(file_not_found), Error(io)
  /// for other failures, such as ENOTDIR.
  static Directory open(const Path& path);
  /// Opens an entry of a folder: one component. Throws Error(file_not_found), Error(corrupt) if it
  /// is a symlink or not a folder, Error(io) otherwise.
  static Directory open_at(const Directory& parent, const std::string& name);
  /// Like open_at, but returns an invalid Directory if there is no such entry or it is not a
  /// folder.
  static Directory try_open_at(const Directory& parent, const std::string& name);

  /// Opens the folder that currently contains this one.
  Directory open_parent() const;

  bool valid() const noexcept { return fd_.valid(); }
  int fd() const noexcept { return fd_.get(); }
  const std::string& display() const noexcept { return display_; }
  /// "display/name", for messages.
  std::string display_of(const std::string& name) const;
  FileInfo info() const;
  /// False if `path` does not exist, is a dangling symlink, or refers to something other than this
  /// folder. Throws Error(io) if `path` cannot be examined.
  bool is_at(const Path& path) const;
  /// lstat of an entry, or nothing if there is none.
  std::optional<FileInfo> entry_info(const std::string& name) const;
  /// Target of an entry that is a symbolic link; empty for other entries and missing ones.
  std::optional<std::string> read_link(const std::string& name) const;
  /// The names of at most `most` entries, without "." and "..", in no particular order. Empty if
  /// the folder was removed.
  std::vector<std::string> list(std::size_t most = static_cast<std::size_t>(-1)) const;
  /// Duplicates the descriptor. Both refer to one open file description, and so to one flock.
  Directory duplicate() const;

  /// As File::try_lock_exclusive().
  LockResult try_lock_exclusive() noexcept;
  LockResult try_lock_shared() noexcept;
  void unlock() noexcept;
  /// False if permissions forbid this process to add and remove entries.
  bool is_writable() const noexcept;

  // The functions below change the folder, and report each change to the observer in
  // change_observer.hpp, except the permissions that remove_tree() adds.

  /// mkdir. The permissions are those of `mode` that the umask allows. Throws Error(io), also for
  /// EEXIST.
  void create_directory(const std::string& name, std::uint32_t mode = 0777);
  /// unlink. Throws Error(file_not_found) if there is no such entry, Error(io) otherwise.
  void remove_file(const std::string& name);
  /// Removes an entry of any kind, including a whole tree. Symlinks are removed, not followed. A
  /// missing entry is not an error. Before it removes the entries of a folder, tries to add the
  /// owner's permissions (rwx) that the folder lacks, which succeeds only for the owner and root.
  void remove_tree(const std::string& name);
  /// Renames atomically; replaces a file or an empty folder. Both names are in this folder.
  void rename(const std::string& from, const std::string& to);
  /// RENAME_NOREPLACE: returns false if `to` exists. If the file system does not support the flag,
  /// checks and renames in two steps, which is not atomic.
  bool rename_if_absent(const std::string& from, const std::string& to);
  /// RENAME_EXCHANGE: returns false if the file system does not support it.
  bool exchange(const std::string& a, const std::string& b);
  /// Creates the symbolic link `name` with target `text`. Returns false if `name` exists. Throws
  /// Error(io): EPERM, EOPNOTSUPP or ENOSYS if the file system has no symbolic links.
  bool create_symlink(const std::string& text, const std::string& name);
  /// Hard-links `name` to the entry `existing` of `from`. Returns false if the link is not allowed:
  /// other file system, no support, too many links, or forbidden (EPERM: immutable or
  /// fs.protected_hardlinks). Throws an Error for other failures, also EACCES and ENOENT.
  bool link_from(const Directory& from, const std::string& existing, const std::string& name);
  /// Makes the entries of the folder durable (fsync).
  void sync();
  /// As File::copy_permissions().
  void copy_permissions(const FileInfo& like);

  void close() noexcept { fd_.close(); }

 private:
  friend class File;
  Directory(int fd, std::string display) : fd_(fd), display_(std::move(display)) {}

  Descriptor fd_;
  std::string display_;
};

/// The folder that contains a path, and the last component of the path.
struct Parent {
  Directory directory;
  std::string name;
};
/// Opens the parent of `path`, whose trailing slashes are ignored. If `create_missing`, creates
/// missing folders, except those before "..", and syncs the folder above each of them. Throws
/// Error(invalid_argument) if `path` does not end with a name.
Parent open_parent(const Path& path, bool create_missing);

}  // namespace tenfold::os

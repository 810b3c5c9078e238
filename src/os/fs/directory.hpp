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
///
/// The name of an entry must be one path component; for other names, functions throw
/// Error(invalid_argument). Failed system calls throw Error(io), or Error(file_not_found) for
/// ENOENT, unless the comment of the function states another result.
class Directory {
 public:
  Directory() = default;

  /// Opens a path given by the user: symlinks are followed.
  static Directory open(const Path& path);
  /// Opens the entry `name` of a folder. Throws Error(corrupt) if the entry is a symlink or not a
  /// folder.
  static Directory open_at(const Directory& parent, const std::string& name);
  /// Like open_at(), but returns an invalid Directory if there is no entry `name`, or if the entry
  /// is a symlink or not a folder.
  static Directory try_open_at(const Directory& parent, const std::string& name);

  /// Opens the folder that currently contains this one.
  Directory open_parent() const;

  bool valid() const noexcept { return fd_.valid(); }
  int fd() const noexcept { return fd_.get(); }
  /// The path of the folder, for messages.
  const std::string& display() const noexcept { return display_; }
  /// "display/name", for messages.
  std::string display_of(const std::string& name) const;
  FileInfo info() const;
  /// False if `path` does not exist, is a dangling symlink, or refers to something other than this
  /// folder. Throws Error(io) if `path` cannot be examined.
  bool is_at(const Path& path) const;
  /// lstat of the entry `name`; nullopt if there is none.
  std::optional<FileInfo> entry_info(const std::string& name) const;
  /// The target of the symbolic link `name`; nullopt if there is no such entry or it is not a link.
  std::optional<std::string> read_link(const std::string& name) const;
  /// The names of at most `most` entries, without "." and "..", in no particular order. No names if
  /// the folder was removed.
  std::vector<std::string> list(std::size_t most = static_cast<std::size_t>(-1)) const;
  /// Duplicates the descriptor. Both descriptors refer to one open file description, so they share
  /// one flock.
  Directory duplicate() const;

  /// Lock the folder as the functions of File with the same names lock a file.
  LockResult try_lock_exclusive() noexcept;
  LockResult try_lock_shared() noexcept;
  void unlock() noexcept;
  /// False only if permissions forbid this process to add and remove entries. True on a read-only
  /// file system.
  bool is_writable() const noexcept;

  // The functions below change the folder, and report each change to the observer in
  // change_observer.hpp, except the permissions that remove_tree() adds.

  /// mkdir. The permissions are those of `mode` that the umask allows. Throws Error(io) with EEXIST
  /// if the entry exists.
  void create_directory(const std::string& name, std::uint32_t mode = 0777);
  /// unlink.
  void remove_file(const std::string& name);
  /// Removes an entry of any kind, including a whole tree. Symlinks are removed, not followed. A
  /// missing entry is not an error. Before it removes the entries of a folder, tries to add the
  /// owner's permissions (rwx) that the folder lacks, which succeeds only for the owner and root.
  void remove_tree(const std::string& name);
  /// Renames an entry of this folder atomically. An entry `to` is replaced if it is a file or an
  /// empty folder.
  void rename(const std::string& from, const std::string& to);
  /// Renames an entry of this folder atomically (RENAME_NOREPLACE), or returns false if `to`
  /// exists. If the system does not support the call, checks and renames in two steps, which
  /// is not atomic.
  bool rename_if_absent(const std::string& from, const std::string& to);
  /// Exchanges two entries of this folder atomically (RENAME_EXCHANGE). Returns false if the system
  /// does not support it: the kernel, the file system, or the seccomp profile of a container.
  bool exchange(const std::string& a, const std::string& b);
  /// Creates the symbolic link `name` with target `text`. Returns false if `name` exists. If the
  /// file system has no symbolic links, throws Error(io) with EPERM, EOPNOTSUPP or ENOSYS.
  bool create_symlink(const std::string& text, const std::string& name);
  /// Creates the hard link `name` to the entry `existing` of `from`. Returns false if that is
  /// impossible: `from` is on another file system, the file system has no hard links, the file has
  /// too many links or is immutable, or fs.protected_hardlinks forbids the link.
  bool link_from(const Directory& from, const std::string& existing, const std::string& name);
  /// Makes the entries of the folder durable (fsync). Ignores EINVAL: the file system does not
  /// support, or does not need, fsync of a folder.
  void sync();
  /// Does for the folder what File::copy_permissions() does for a file.
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
/// Opens the parent of `path`, whose trailing slashes are ignored. If `create_missing`, first
/// creates missing folders above the last component, except those before "..", and syncs the parent
/// of each created folder. Throws Error(invalid_argument) if `path` is empty or "/", or ends with
/// "." or "..".
Parent open_parent(const Path& path, bool create_missing);

}  // namespace tenfold::os

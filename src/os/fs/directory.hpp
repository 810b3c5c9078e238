#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "os/fs/file.hpp"

namespace tenfold::os {

/// An open folder, which stays the same folder whatever happens to its name; move-only.
class Directory {
 public:
  Directory() = default;

  /// The user's own path: symlinks are followed. Error(file_not_found), Error(io) (ENOTDIR).
  static Directory open(const Path& path);
  /// An entry of a folder: one component, never a symlink.
  static Directory open_at(const Directory& parent, const std::string& name);
  /// As open_at, but an invalid Directory if there is no such entry or it is no folder.
  static Directory try_open_at(const Directory& parent, const std::string& name);

  /// The folder that this one lies in now.
  Directory open_parent() const;

  bool valid() const noexcept { return fd_.valid(); }
  int fd() const noexcept { return fd_.get(); }
  const std::string& display() const noexcept { return display_; }
  /// "display/name", for messages.
  std::string display_of(const std::string& name) const;
  FileInfo info() const;
  /// lstat of an entry, or nothing if there is none.
  std::optional<FileInfo> entry_info(const std::string& name) const;
  /// The text of an entry that is a symbolic link; nothing for others, or if there is none.
  std::optional<std::string> read_link(const std::string& name) const;
  /// Names of all entries but "." and "..", in no order; at most so many.
  std::vector<std::string> list(std::size_t most = static_cast<std::size_t>(-1)) const;
  /// Another descriptor of the same folder.
  Directory duplicate() const;

  /// As for File.
  LockResult try_lock_exclusive() noexcept;
  LockResult try_lock_shared() noexcept;
  void unlock() noexcept;
  /// False if the permissions deny this process to add and remove entries.
  bool is_writable() const noexcept;

  // What follows changes the folder, and goes through the seam in fault.hpp.

  /// mkdir; 0777 less the umask unless `mode` is given. Throws Error(io) (EEXIST too).
  void create_directory(const std::string& name, std::uint32_t mode = 0777);
  void remove_file(const std::string& name);
  /// Removes the entry whatever it is, a whole tree too; symlinks are removed, not followed.
  /// Nothing there is fine. A folder of this user's without write permission gets it first.
  void remove_tree(const std::string& name);
  /// Atomic; replaces a file or an empty folder of that name. Both names in this folder.
  void rename(const std::string& from, const std::string& to);
  /// RENAME_NOREPLACE: false if `to` exists.
  bool rename_if_absent(const std::string& from, const std::string& to);
  /// RENAME_EXCHANGE: false where the file system cannot.
  bool exchange(const std::string& a, const std::string& b);
  /// Makes the symbolic link `name` with that text. False if `name` exists; throws Error(io)
  /// otherwise (EPERM, EOPNOTSUPP or ENOSYS where the file system has no symbolic links).
  bool create_symlink(const std::string& text, const std::string& name);
  /// Hard link `name` to the entry `existing` of `from`; false where the file system cannot.
  bool link_from(const Directory& from, const std::string& existing, const std::string& name);
  void sync();
  void copy_permissions(const FileInfo& like);

  void close() noexcept { fd_.close(); }

 private:
  friend class File;
  Directory(int fd, std::string display) : fd_(fd), display_(std::move(display)) {}

  Descriptor fd_;
  std::string display_;
};

/// The folder that holds `path`, and the last component of `path`.
struct Parent {
  Directory directory;
  std::string name;
};
/// Opens the parent of `path`, creating missing folders above it.
Parent open_parent(const Path& path, bool create_missing);

}  // namespace tenfold::os

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace tenfold::os {

/// A change of a file system by one or more system calls, or a sync. It is reported before the
/// first call, and again after the last call if the calls succeeded. A File::reserve() or
/// Directory::sync() that the file system does not support counts as success.
struct Change {
  enum class Kind : std::uint8_t {
    create_file,
    create_directory,
    write,
    truncate,
    insert,  ///< a hole of `size_bytes` at `offset_bytes`; later bytes move
    sync_file,
    sync_directory,
    rename,    ///< `name` to `other`, which is replaced if it exists
    exchange,  ///< `name` with `other`
    link,      ///< creates `name`, a hard link to `other`
    symlink,   ///< creates `name`, with target `other`
    remove_file,
    remove_directory,
    permissions,
  };
  Kind kind;
  /// Device and inode of the open file or directory. For calls on an entry, such as create_file,
  /// remove_file and rename: of the directory that contains the entry.
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::string name;  ///< for calls on an entry: its name
  /// For rename, exchange and link: the other entry; for symlink: the target of the link.
  std::string other;
  std::uint64_t other_directory = 0;  ///< for link: inode of the directory of `other`
  std::uint64_t offset_bytes = 0;     ///< for write and insert: the offset; for truncate: new size
  std::uint64_t size_bytes = 0;       ///< for insert: the size of the hole
  std::span<const std::byte> bytes;   ///< for write: the bytes
  int descriptor = -1;                ///< descriptor of the open file or directory
};

/// Observes each Change before its first system call, and after the last one if the calls
/// succeeded. For tests: an observer may record the Change, throw, or end the process. At most one
/// observer is installed at a time. It must be thread-safe.
class ChangeObserver {
 public:
  virtual ~ChangeObserver() = default;
  virtual void before(const Change& change) = 0;
  /// `inode`: the inode of the created file, directory or symbolic link; 0 for other changes.
  virtual void after(const Change& change, std::uint64_t inode) = 0;
  /// Called before a function of file.hpp or directory.hpp examines or opens an entry called `name`
  /// (or a path). Not called by read_link(), resolve_link(), canonical(), path_within() and list().
  virtual void before_read(const std::string& /*name*/) {}
  /// If not 0, an attempt to lock a file or folder fails with this errno, without calling flock.
  virtual int lock_errno() { return 0; }
  /// If not 0, File::close_written() throws Error(io) with this errno after it has closed the file.
  virtual int close_errno() { return 0; }
};

/// Installs `observer` (null for none) and returns the previous one.
ChangeObserver* set_change_observer(ChangeObserver* observer) noexcept;

/// If false, Directory::exchange() behaves as on a file system without RENAME_EXCHANGE. For tests;
/// returns the previous setting.
bool set_exchange_supported(bool supported) noexcept;

/// If false, File::insert_hole() behaves as on a file system without FALLOC_FL_INSERT_RANGE. For
/// tests; returns the previous setting.
bool set_insert_supported(bool supported) noexcept;

}  // namespace tenfold::os

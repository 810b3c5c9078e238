#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace tenfold::os {

/// Every system call by which this library changes a file system, as it is about to happen.
struct Change {
  enum class Kind : std::uint8_t {
    create_file,
    create_directory,
    write,
    truncate,
    sync_file,
    sync_directory,
    rename,    ///< `name` to `other`, replacing
    exchange,  ///< `name` with `other`
    link,      ///< `other` (existing) to `name`
    symlink,   ///< `name`, with the text `other`
    remove_file,
    remove_directory,
    permissions,
  };
  Kind kind;
  /// Device and inode of the file concerned (write, truncate, sync_file, permissions; of the new
  /// file after the call for create_file) or of the directory (all others).
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::string name;                   ///< the entry, for calls on a directory
  std::string other;                  ///< rename, exchange, link: the other entry
  std::uint64_t other_directory = 0;  ///< link: inode of the directory of `other`
  std::uint64_t offset_bytes = 0;     ///< write; truncate: the new size
  std::span<const std::byte> bytes;   ///< write
  int descriptor = -1;                ///< of the file or directory, open
};

/// Sees every Change, before and after it happens. For tests: it may record, throw, or end the
/// process. At most one at a time; it must be thread-safe.
class ChangeObserver {
 public:
  virtual ~ChangeObserver() = default;
  virtual void before(const Change& change) = 0;
  /// `inode` is that of a created file or directory, otherwise 0.
  virtual void after(const Change& change, std::uint64_t inode) = 0;
  /// An entry called `name` (or a path) is about to be examined, or opened.
  virtual void before_read(const std::string& /*name*/) {}
  /// The errno that flock, or the close of a file that was written, fails with instead of being
  /// called; 0: it is called.
  virtual int lock_errno() { return 0; }
  virtual int close_errno() { return 0; }
};

/// Installs `observer` (null: none) and returns the previous one.
ChangeObserver* set_change_observer(ChangeObserver* observer) noexcept;

/// False: Directory::exchange behaves as on a file system that cannot. For tests; returns what was
/// set before.
bool set_exchange_supported(bool supported) noexcept;

}  // namespace tenfold::os

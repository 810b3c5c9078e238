#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>

#include "os/fs/descriptor.hpp"

namespace tenfold::os {

using Path = std::filesystem::path;

/// Identity, size and attributes of a file.
struct FileInfo {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t num_links = 0;
  std::uint64_t size_bytes = 0;
  std::uint32_t mode = 0;  ///< permission bits
  std::uint32_t user = 0;
  std::uint32_t group = 0;
  bool is_regular = false;
  bool is_directory = false;
  bool is_symlink = false;
  std::int64_t modified_ns = 0;  ///< last modification, nanoseconds since 1970
  bool same_file(const FileInfo& o) const noexcept {
    return device == o.device && inode == o.inode;
  }
};

/// stat(): follows symlinks. Throws Error(file_not_found) if there is no such file, otherwise
/// Error(io).
FileInfo file_info(const Path& path);
/// True if `path` exists; also true for a dangling symlink. Throws Error(io) if it cannot be
/// examined, for example without permission to search a folder of the path.
bool exists(const Path& path);
/// "a/b" for "a/b//". A path of slashes alone is returned unchanged.
Path without_trailing_slashes(Path path);
/// Removes trailing slashes, and then replaces `path` by its target as long as it is a symlink.
/// `path` need not exist. A save writes to the result, so it replaces the target of a link, not the
/// link. Throws Error(io) if the links form a loop or cannot be read.
Path resolve_link(const Path& path);
/// `path` relative to `folder` ("." for the folder itself); empty if `path` is not in the folder.
/// Resolves symlinks; `path` need not exist. Throws Error(io) if a path cannot be resolved.
Path path_within(const Path& folder, const Path& path);

/// Returns `path`, with the working directory before it if `path` is relative. Throws Error(io) if
/// the working directory is needed but was removed.
Path absolute(const Path& path);
/// Returns the absolute path without "." and "..", with symlinks resolved in the part of it that
/// exists. Throws Error(io) if a link or folder cannot be read.
Path canonical(const Path& path);

class Directory;

/// Result of flock without waiting.
enum class LockResult : std::uint8_t {
  acquired,
  held,         ///< another open file description holds a conflicting lock
  unsupported,  ///< flock failed: the file system has no locks (NFS, Lustre without `-o flock`)
};

/// An open regular file; move-only. Opening a FIFO, device, socket or directory throws
/// Error(corrupt) "expected a regular file", and does not wait for another process to open a FIFO.
///
/// Failed system calls throw Error(io), or Error(file_not_found) for ENOENT, unless the comment of
/// the function states another result. The name of an entry must be one path component; for other
/// names, functions throw Error(invalid_argument).
class File {
 public:
  File() = default;

  /// Opens a path given by the user: symlinks are followed.
  static File open_read(const Path& path);
  static File open_read_write(const Path& path);
  /// Opens the entry `name` of a folder. Throws Error(corrupt) if the entry is a symlink.
  static File open_read_at(const Directory& directory, const std::string& name);
  static File open_read_write_at(const Directory& directory, const std::string& name);
  /// Like open_read_at() and open_read_write_at(), but return an invalid File if there is no such
  /// entry.
  static File try_open_read_at(const Directory& directory, const std::string& name);
  static File try_open_read_write_at(const Directory& directory, const std::string& name);
  /// Creates a file and opens it for reading and writing. The permissions are those of `mode` that
  /// the umask allows. Throws Error(io) with EEXIST if the entry exists.
  static File create_at(const Directory& directory, const std::string& name,
                        std::uint32_t mode = 0666);
  /// Creates an unnamed file in memory (memfd). Messages call it `display`.
  static File in_memory(std::string display);

  bool valid() const noexcept { return fd_.valid(); }
  FileInfo info() const;
  /// info() at the time of opening, without another system call; all members are 0 or false for a
  /// file from create_at() or in_memory().
  const FileInfo& info_at_open() const noexcept { return info_at_open_; }
  std::uint64_t size_bytes() const { return info().size_bytes; }
  /// The name of the file in messages. Depending on how the file was opened, it is the path as the
  /// user gave it, "<folder>/<entry>", or the argument of in_memory().
  const std::string& display() const noexcept { return display_; }
  int fd() const noexcept { return fd_.get(); }

  /// Fills `into` from `offset_bytes` (pread). If the file is too short, throws Error(corrupt) with
  /// the expected and the found size.
  void read_at(std::uint64_t offset_bytes, std::span<std::byte> into) const;
  /// Like read_at(), but stops at the end of the file. Returns the number of bytes read.
  std::size_t read_some_at(std::uint64_t offset_bytes, std::span<std::byte> into) const;

  // The functions up to copy_permissions(), except block_bytes() and start_writeback(), change the
  // file and report each change to the observer in change_observer.hpp.

  /// Writes all of `bytes` at `offset_bytes` (pwrite).
  void write_at(std::uint64_t offset_bytes, std::span<const std::byte> bytes);
  /// Writes `parts` consecutively, without copying them (pwritev). Copies them into one buffer
  /// first if there are more than kMaxParts, or if an observer is installed.
  void write_at(std::uint64_t offset_bytes, std::span<const std::span<const std::byte>> parts);
  static constexpr std::size_t kMaxParts = 1024;  ///< IOV_MAX of Linux
  /// Sets the length. Added bytes are a hole.
  void truncate(std::uint64_t size_bytes);
  /// Allocates the holes (fallocate), so that writing to them through a mapping cannot raise SIGBUS
  /// on a full disk. Returns false, and leaves the holes, if the file system does not support it.
  /// Throws Error(io), with ENOSPC if the disk is full.
  bool reserve();
  /// Inserts a hole of `size_bytes` at `offset_bytes`, so that the offsets of all later bytes grow
  /// by `size_bytes`, without copying the bytes (FALLOC_FL_INSERT_RANGE). The offset must be within
  /// the file. Both numbers must be multiples of the file system's block size, as multiples of
  /// block_bytes() are. Returns false, and changes nothing, if the numbers do not meet these
  /// conditions or the file system does not support the call. If it throws, some bytes may have
  /// moved.
  bool insert_hole(std::uint64_t offset_bytes, std::uint64_t size_bytes);
  /// The file system's preferred size of reads and writes, a multiple of its block size
  /// (st_blksize).
  std::uint64_t block_bytes() const;
  /// Makes the data and the metadata needed to read it durable (fdatasync).
  void sync();
  /// Starts writeback without waiting (sync_file_range). Ignores errors.
  void start_writeback();
  /// Copies permission bits, owner and group of `like`. Failing to change owner or group is not an
  /// error, but may reduce the permissions.
  void copy_permissions(const FileInfo& like);

  /// Reads the whole file. If it is larger than `limit_bytes`, throws Error(corrupt) before memory
  /// is allocated.
  std::string read_all(std::uint64_t limit_bytes) const;

  /// flock without waiting. Closing this object in the process that took an exclusive lock releases
  /// the lock, even while a forked child has the descriptor too. Closing it in the forked child
  /// does not release the lock. A shared lock is kept until every process has closed the
  /// descriptor.
  LockResult try_lock_exclusive() noexcept;
  LockResult try_lock_shared() noexcept;
  /// Releases the lock, also for forked children that share this open file description.
  void unlock() noexcept;

  void close() noexcept { fd_.close(); }
  /// Closes a file that was written. Throws Error(io) if the system reports a failed write, because
  /// network file systems may write back only on close.
  void close_written();

 private:
  friend class Directory;
  File(int fd, std::string display, FileInfo info_at_open = {})
      : fd_(fd), display_(std::move(display)), info_at_open_(info_at_open) {}

  Descriptor fd_;
  std::string display_;
  FileInfo info_at_open_;
};

}  // namespace tenfold::os

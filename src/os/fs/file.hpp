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

/// What tells one file from another, and how large it is now.
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

/// stat(); follows symlinks. Throws Error(file_not_found), Error(io).
FileInfo file_info(const Path& path);
/// True if something (a dangling symlink too) is at `path`.
bool exists(const Path& path);
/// `path` with symlinks of its last component resolved, so that a save through a link replaces
/// what the link names. A path that does not exist is returned as it is.
Path resolve_link(const Path& path);

class Directory;

/// What a file system answers to flock without waiting.
enum class LockResult : std::uint8_t {
  acquired,
  held,         ///< another open file description holds a lock that excludes this one
  unsupported,  ///< there are no locks here (NFS, Lustre without `-o flock`): nothing is known
};

/// An open regular file; move-only. Messages name `display`, the path as the user knows it.
/// Opening a FIFO, device, socket or directory is Error(corrupt) "expected a regular file", and
/// never blocks.
class File {
 public:
  File() = default;

  /// The user's own path: symlinks are followed.
  static File open_read(const Path& path);
  static File open_read_write(const Path& path);
  /// An entry of a folder: one component, never a symlink (Error(corrupt) if it is).
  static File open_read_at(const Directory& directory, const std::string& name);
  static File open_read_write_at(const Directory& directory, const std::string& name);
  /// As open_read_at, but an invalid File if there is no such entry.
  static File try_open_read_at(const Directory& directory, const std::string& name);
  /// A new file, which must not exist. 0666 less the umask unless `mode` is given.
  static File create_at(const Directory& directory, const std::string& name,
                        std::uint32_t mode = 0666);
  /// A file without a name, in memory (memfd), which messages call `display`.
  static File in_memory(std::string display);

  bool valid() const noexcept { return fd_.valid(); }
  FileInfo info() const;
  /// What info() was when the file was opened, without asking again; nothing for a new file.
  const FileInfo& info_at_open() const noexcept { return info_at_open_; }
  std::uint64_t size_bytes() const { return info().size_bytes; }
  const std::string& display() const noexcept { return display_; }
  int fd() const noexcept { return fd_.get(); }

  /// Fills `into` from `offset_bytes` (pread). Throws Error(corrupt) naming expected and found
  /// size if the file ends before, Error(io) otherwise.
  void read_at(std::uint64_t offset_bytes, std::span<std::byte> into) const;
  /// As read_at, but stops at the end of the file: returns the bytes read.
  std::size_t read_some_at(std::uint64_t offset_bytes, std::span<std::byte> into) const;

  // What follows changes the file, and goes through the seam in fault.hpp.

  /// Writes all of `bytes` at `offset_bytes` (pwrite).
  void write_at(std::uint64_t offset_bytes, std::span<const std::byte> bytes);
  /// Writes `parts` one after the other by one call (pwritev); at most kMaxParts.
  void write_at(std::uint64_t offset_bytes, std::span<const std::span<const std::byte>> parts);
  static constexpr std::size_t kMaxParts = 1024;  ///< IOV_MAX of Linux
  /// Sets the length; new bytes are a hole.
  void truncate(std::uint64_t size_bytes);
  /// Reserves the space of holes (fallocate), so that writing them through a map does not end the
  /// process on a full disk. False, and they stay holes, where the file system cannot.
  bool reserve();
  /// On the device when it returns: data and what is needed to find it (fdatasync).
  void sync();
  /// Starts writing back without waiting (sync_file_range); a hint.
  void start_writeback();
  /// Permission bits and owner of `like`; failing to give away ownership is no error.
  void copy_permissions(const FileInfo& like);

  /// Asks the kernel to read the range ahead; a hint, returns at once.
  void will_need(std::uint64_t offset_bytes, std::uint64_t size_bytes) const noexcept;

  /// The whole file as bytes, at most `limit_bytes` (Error(corrupt) beyond, before allocating).
  std::string read_all(std::uint64_t limit_bytes) const;

  /// flock without waiting. An exclusive lock is released by the close of this object, even while
  /// a forked child has the descriptor, too; a forked child's close does not release it. A shared
  /// lock stays until every process has closed the descriptor.
  LockResult try_lock_exclusive() noexcept;
  LockResult try_lock_shared() noexcept;
  /// Also for the forks that share this open file description.
  void unlock() noexcept;

  void close() noexcept { fd_.close(); }
  /// Closes a file that was written. Throws Error(io) if the system reports that bytes did not
  /// reach the file: network file systems write back no later than here.
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

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <tenfold/buffer.hpp>

#include "base/hash/checksum.hpp"
#include "os/fs/directory.hpp"
#include "os/fs/file.hpp"

namespace tenfold {

/// A file that is written by large appends, with a checksum for each block. Where the file system
/// supports it, writes of 2 MiB that are aligned to 2 MiB become huge pages in the page cache.
/// Through a mapping, random access is then several times as fast as with small pages.
///
/// Thread safety: one thread at a time.
class PartFile {
 public:
  struct Options {
    /// Size of the write buffer, and alignment of writes in the file; 0, or a power of two.
    std::size_t buffer_bytes = 0;
    bool stays_open = true;  ///< false: reopen the file for each write; for very many files
    /// True if sync() will follow finish(): starts writeback early.
    bool will_sync = false;
  };

  /// Creates the file `name` in `folder`, which must outlive this object.
  PartFile(os::Directory& folder, std::string name, const Options& options);

  void append(std::span<const std::byte> bytes);
  /// Writes the buffer. Afterwards the file can be read.
  void flush();
  /// Writes the buffer, and reduces its size to `buffer_bytes`, a power of two.
  void shrink_buffer(std::size_t buffer_bytes);
  /// Writes the buffer. Keeps the file open for sync() if it is open and Options::will_sync is set;
  /// otherwise closes it. Nothing can be appended afterwards.
  void finish();
  /// After finish(): makes the file durable (fdatasync) and closes it. If the file is still open,
  /// uses the descriptor of the writes, which also reports errors of earlier writebacks.
  void sync();

  std::uint64_t size_bytes() const noexcept { return size_bytes_; }
  /// After finish(): one checksum for each block of base::kChecksumBlockBytes.
  std::vector<std::uint64_t> checksums() const { return sums_.checksums(); }
  const std::string& name() const noexcept { return name_; }
  os::Directory& folder() const noexcept { return *folder_; }
  /// After flush(): reads from the file. Throws Error(corrupt) beyond the end.
  void read_at(std::uint64_t offset_bytes, std::span<std::byte> into) const;
  /// Maps the bytes appended so far, read-only.
  Buffer map();
  /// Renames the finished file in its folder.
  void rename(const std::string& name);
  /// Removes the file.
  void remove();

 private:
  void write(std::span<const std::byte> bytes);

  os::Directory* folder_;
  std::string name_;
  Options options_;
  os::File file_;
  std::vector<std::byte> gathered_;
  std::uint64_t size_bytes_ = 0;     ///< bytes appended
  std::uint64_t written_bytes_ = 0;  ///< bytes written to the file
  std::uint64_t started_bytes_ = 0;  ///< bytes whose writeback was started
  base::BlockSums sums_;             ///< checksums of the bytes written to the file
};

}  // namespace tenfold

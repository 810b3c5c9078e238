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

/// A file that grows: appended to in large writes, checksummed on the way, block by block. Writes
/// of 2 MiB at multiples of it lie in the page cache as huge pages, through which a map of the file
/// finds rows at random several times as fast as through small ones.
///
/// Thread safety: one thread at a time.
class PartFile {
 public:
  struct Options {
    /// Gathered before they are written, and what writes begin and end at multiples of in the file;
    /// 0, or a power of two.
    std::size_t buffer_bytes = 0;
    bool stays_open = true;  ///< false: opened for each write, where there are very many
    /// sync() follows finish(): the device may begin while more comes.
    bool will_sync = false;
  };

  /// Creates the file `name` in `folder`, which outlives this object.
  PartFile(os::Directory& folder, std::string name, const Options& options);

  void append(std::span<const std::byte> bytes);
  /// Writes what is gathered. Afterwards the file can be read.
  void flush();
  /// Writes what is gathered and the last checksum; the end. Closes the file, unless sync()
  /// follows.
  void finish();
  /// After finish(): waits for the device, by the descriptor that wrote, which knows of errors
  /// since, and closes the file.
  void sync();

  std::uint64_t size_bytes() const noexcept { return size_bytes_; }
  /// After finish(): of each block of base::kChecksumBlockBytes.
  const std::vector<std::uint64_t>& checksums() const noexcept { return checksums_; }
  const std::string& name() const noexcept { return name_; }
  os::Directory& folder() const noexcept { return *folder_; }
  /// After flush(): Throws Error(corrupt) beyond the end.
  void read_at(std::uint64_t offset_bytes, std::span<std::byte> into) const;
  /// What was appended so far, mapped to be read.
  Buffer map();
  /// Gives the finished file another name in its folder.
  void rename(const std::string& name);
  /// Removes the file, which is of no use any more.
  void remove();

 private:
  void write(std::span<const std::byte> bytes);
  void checksum(std::span<const std::byte> bytes);

  os::Directory* folder_;
  std::string name_;
  Options options_;
  os::File file_;
  std::vector<std::byte> gathered_;
  std::uint64_t size_bytes_ = 0;     ///< appended
  std::uint64_t written_bytes_ = 0;  ///< of these, in the file
  std::uint64_t started_bytes_ = 0;  ///< of these, asked to be brought to the device
  base::Xxh3Stream block_;
  std::uint64_t block_bytes_ = 0;
  std::vector<std::uint64_t> checksums_;
};

}  // namespace tenfold

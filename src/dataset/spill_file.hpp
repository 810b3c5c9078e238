#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <tenfold/io.hpp>
#include <tenfold/leaf.hpp>

#include "os/fs/file.hpp"

namespace tenfold {

/// A buffer that is appended to and read afterwards: in memory while it is small, then in a spill
/// file. The file has no name, so it disappears even after a crash, unless the crash occurs between
/// its creation and the removal of its name.
///
/// Thread safety: after the last append() or flush(), read() may be called from any thread.
class SpillFile {
 public:
  /// `folder`: where the spill file is created; empty: the system's folder for temporary files. The
  /// file is created when more than `memory_bytes` are appended.
  SpillFile(Path folder, std::size_t memory_bytes);

  /// Throws Error(io) (ENOSPC) if `count` items of `item_bytes` need the spill file and
  /// os::require_free_space() finds that they cannot fit on its disk. Call it before append(),
  /// because filling a disk before an error can take hours.
  void require_space(std::uint64_t count, std::uint64_t item_bytes) const;
  void append(std::span<const std::byte> bytes);
  /// Appends all bytes of `other`.
  void append(const SpillFile& other);
  std::uint64_t size_bytes() const noexcept { return written_bytes_ + gathered_.size(); }
  void read(std::uint64_t offset_bytes, std::span<std::byte> into) const;
  /// If there is a file, writes the bytes that are still in memory to it.
  void flush();

  bool in_memory() const noexcept { return !file_.valid(); }
  const os::File& file() const noexcept { return file_; }
  std::span<const std::byte> gathered() const noexcept { return gathered_; }

 private:
  Path folder_;
  std::size_t memory_bytes_;
  os::File file_;
  std::uint64_t written_bytes_ = 0;
  std::vector<std::byte> gathered_;  ///< appended bytes that are not in the file
};

/// A tensor over all bytes of `spill`, to which nothing may be appended afterwards.
Leaf leaf_of(std::shared_ptr<SpillFile> spill, DType dtype, Shape shape);

}  // namespace tenfold

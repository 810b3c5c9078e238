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

/// Bytes that are added at the end and read afterwards: in memory while they are few, else in a
/// file without a name, which leaves nothing behind whatever happens.
///
/// Thread safety: read() from any thread once nothing is added any more.
class Spool {
 public:
  /// `folder`: where the file would be, the system's for such files if empty; more than
  /// `memory_bytes` go there.
  Spool(Path folder, std::size_t memory_bytes);

  /// Throws Error(io) (ENOSPC) if `count` items of `item_bytes` have no room where the file would
  /// be: to fill a disk takes hours.
  void require_space(std::uint64_t count, std::uint64_t item_bytes) const;
  void append(std::span<const std::byte> bytes);
  /// Adds all bytes of `other`.
  void append(const Spool& other);
  std::uint64_t size_bytes() const noexcept { return written_bytes_ + gathered_.size(); }
  void read(std::uint64_t offset_bytes, std::span<std::byte> into) const;
  /// Writes what is gathered, if there is a file, so that its memory can go.
  void flush();

  bool in_memory() const noexcept { return !file_.valid(); }
  const os::File& file() const noexcept { return file_; }
  std::span<const std::byte> gathered() const noexcept { return gathered_; }

 private:
  Path folder_;
  std::size_t memory_bytes_;
  os::File file_;
  std::uint64_t written_bytes_ = 0;
  std::vector<std::byte> gathered_;  ///< behind what is written
};

/// A tensor over the bytes of a spool, to which nothing is added any more.
Leaf leaf_of(std::shared_ptr<Spool> spool, DType dtype, Shape shape);

}  // namespace tenfold

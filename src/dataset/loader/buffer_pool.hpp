#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include <tenfold/buffer.hpp>

#include "os/thread/fork_safe_lock.hpp"

namespace tenfold {

/// Memory for batches that the caller provides, such as pinned blocks. Each block is used once, and
/// released with the last tensor over it. Blocks are not reused, because only the caller can
/// determine when a copy from a block to a device has finished.
///
/// Thread safety: all members may be called from any thread.
class SuppliedMemory {
 public:
  void supply(Buffer block);
  /// Returns the smallest block of at least `size_bytes`, truncated to `size_bytes`; nullopt if
  /// there is none.
  std::optional<Buffer> take(std::size_t size_bytes);
  /// The first 1,024 sizes requested since the last call, whether or not there was a block. If a
  /// caller supplies blocks of these sizes, later batches of the same sizes find a block.
  std::vector<std::size_t> requested();

 private:
  /// In a child that was forked while a thread held the mutex, the first lock empties the lists.
  os::RenewingMutex mutex_{[this] {
    std::construct_at(&blocks_);
    std::construct_at(&requested_);
  }};
  std::vector<Buffer> blocks_;  ///< in the order in which they were supplied
  std::vector<std::size_t> requested_;
};

/// Memory for batches. A block returns to the pool when the last tensor over it is destroyed. So
/// the batches of an epoch reuse a few blocks, and page faults occur only when a block is first
/// used. A block is never used by two batches at a time.
///
/// Thread safety: all members may be called from any thread; buffers may outlive the pool.
class BufferPool {
 public:
  /// take() returns each block of `supplied` once, and prefers these blocks to memory of the pool.
  explicit BufferPool(std::shared_ptr<SuppliedMemory> supplied = nullptr);

  /// Returns `size_bytes` of uninitialised memory. Memory of the pool is aligned to 64 bytes.
  Buffer take(std::size_t size_bytes) const;

  /// Total size of the free blocks.
  std::size_t free_bytes() const;

 private:
  struct Blocks;
  std::shared_ptr<Blocks> blocks_;
  std::shared_ptr<SuppliedMemory> supplied_;
};

}  // namespace tenfold

#pragma once

#include <cstddef>
#include <memory>

#include <tenfold/buffer.hpp>

#include "dataset/supplied_memory.hpp"

namespace tenfold {

/// Memory for batches. A block returns to the pool when the last tensor over it is destroyed, so
/// that the batches of an epoch use a few blocks, whose pages exist already. A block is never used
/// by two batches at a time.
///
/// Thread safety: all members may be called from any thread; buffers may outlive the pool.
class BufferPool {
 public:
  /// `supplied`: blocks to use, once each, before memory of the pool.
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

#pragma once

#include <cstddef>
#include <memory>

#include <tenfold/buffer.hpp>

#include "dataset/supplied_memory.hpp"

namespace tenfold {

/// Memory for batches that comes back when the last tensor over it dies, so that an epoch's batches
/// live in a few warm blocks. What is lent is never lent twice.
///
/// Thread safety: all members may be called from any thread; buffers may outlive the pool.
class BufferPool {
 public:
  /// `supplied`: has blocks that are used rather than memory of its own, each once.
  explicit BufferPool(std::shared_ptr<SuppliedMemory> supplied = nullptr);

  /// `size_bytes` of uninitialised memory, aligned to 64.
  Buffer take(std::size_t size_bytes) const;

  /// Bytes of the blocks that wait to be used again.
  std::size_t free_bytes() const;

 private:
  struct Blocks;
  std::shared_ptr<Blocks> blocks_;
  std::shared_ptr<SuppliedMemory> supplied_;
};

}  // namespace tenfold

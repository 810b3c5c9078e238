#pragma once

#include <cstddef>
#include <mutex>
#include <optional>
#include <vector>

#include <tenfold/buffer.hpp>

namespace tenfold {

/// Memory for batches that somebody else gives, such as pinned blocks. Each block is used once and
/// released with the last tensor over it: only its giver knows when a copy from it has ended and it
/// may be written again.
///
/// Thread safety: all members may be called from any thread.
class SuppliedMemory {
 public:
  void supply(Buffer block);
  /// The smallest block that holds so many bytes, cut to them; nothing if there is none.
  std::optional<Buffer> take(std::size_t size_bytes);
  /// The sizes that were asked for since the last call, whether there was a block or not: who
  /// supplies as many again has enough of them after some batches.
  std::vector<std::size_t> asked();

 private:
  std::mutex mutex_;
  std::vector<Buffer> blocks_;  ///< those supplied first come first
  std::vector<std::size_t> asked_;
};

}  // namespace tenfold

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include <tenfold/buffer.hpp>

namespace tenfold::detail::formats::folder {

/// Memory for small leaves, many in one block. Mapping each leaf would cost a system call, a page
/// and one of the 65,530 mappings that Linux allows a process by default. The arena owns its newest
/// block. An earlier block is freed when all its leaves are destroyed. Thread-safe, except close().
class Arena {
 public:
  /// Larger leaves are mapped instead.
  static constexpr std::uint64_t kMaxPieceBytes = std::uint64_t{64} << 10;

  /// True if a leaf of this size is stored in the arena. Always false after close(): then leaves of
  /// all sizes are mapped.
  bool takes(std::uint64_t size_bytes) const noexcept {
    return is_open_ && size_bytes <= kMaxPieceBytes;
  }
  /// Makes takes() return false, for trees whose files may be overwritten while they are open. Call
  /// this before any leaf is read.
  void close() noexcept { is_open_ = false; }

  /// Allocates `size_bytes` uninitialised bytes (at most kMaxPieceBytes), aligned to 64 bytes.
  Buffer allocate(std::size_t size_bytes);

 private:
  bool is_open_ = true;
  std::mutex mutex_;
  std::shared_ptr<std::byte> block_;
  std::size_t block_bytes_ = 0;
  std::size_t used_bytes_ = 0;
};

}  // namespace tenfold::detail::formats::folder

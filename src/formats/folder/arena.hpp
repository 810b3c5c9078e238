#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include <tenfold/buffer.hpp>

namespace tenfold::detail::formats::folder {

/// Memory for small leaves, many to a block: a map apiece would cost a system call, a page and one
/// of the 65,530 maps that a process may have. A block lives until the last piece of it is gone.
/// Thread-safe.
class Arena {
 public:
  /// Larger pieces are better mapped.
  static constexpr std::uint64_t kMaxPieceBytes = std::uint64_t{64} << 10;

  /// False: leaves of every size are to be mapped, because their bytes change under the reader.
  bool takes(std::uint64_t size_bytes) const noexcept {
    return is_open_ && size_bytes <= kMaxPieceBytes;
  }
  void close() noexcept { is_open_ = false; }

  /// `size_bytes` bytes (at most kMaxPieceBytes), aligned to 64, their values not set.
  Buffer allocate(std::size_t size_bytes);

 private:
  bool is_open_ = true;  ///< closed before any leaf is read
  std::mutex mutex_;
  std::shared_ptr<std::byte> block_;
  std::size_t block_bytes_ = 0;
  std::size_t used_bytes_ = 0;
};

}  // namespace tenfold::detail::formats::folder

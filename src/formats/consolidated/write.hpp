#pragma once

#include <algorithm>
#include <cstdint>

#include "base/checked.hpp"
#include "formats/format.hpp"

namespace tenfold::detail::formats::consolidated {

/// Assigns locations to the tensors of a consolidated file. The bytes of all tensors form one block
/// at the start of the file. The locations are those that tensordict assigns, except that
/// complex128 tensors are aligned to 16 bytes, so that torch can view them.
class BlockLayout {
 public:
  /// The alignment of a tensor whose elements have `itemsize` bytes.
  static std::uint64_t alignment(std::uint64_t itemsize) noexcept {
    return std::max(kPadding, itemsize);
  }
  /// Appends a tensor, padded to a multiple of 8 bytes. Returns the offset of its first byte.
  std::uint64_t add(std::uint64_t itemsize, std::uint64_t size_bytes) noexcept {
    const std::uint64_t begin = base::align_up(size_bytes_, alignment(itemsize));
    size_bytes_ = begin + base::align_up(size_bytes, kPadding);
    return begin;
  }
  /// The size of the block: the end of the last tensor and its padding.
  std::uint64_t size_bytes() const noexcept { return size_bytes_; }

 private:
  static constexpr std::uint64_t kPadding = 8;

  std::uint64_t size_bytes_ = 0;
};

/// Implements kFormat.write_tree, which passes false as `locked`. Stores `locked` as "is_locked" of
/// every node.
void write_tree(const TensorDict& tree, const Path& path, const WriteRequest& request, bool locked);

}  // namespace tenfold::detail::formats::consolidated

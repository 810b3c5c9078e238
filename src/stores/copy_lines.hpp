#pragma once

#include <cstddef>

namespace tenfold {

inline constexpr std::size_t kCacheLineBytes = 64;

/// Copies `size_bytes`, at least a line, from `from` to `out`, and asks, line by line, for as much
/// of what begins at `coming`, which may be anywhere: it is not read.
using CopyLines = void (*)(const std::byte* coming, const std::byte* from, std::size_t size_bytes,
                           std::byte* out) noexcept;

struct LineCopiers {
  /// Asks for what comes from memory, into the second cache: that has many more requests under way
  /// at a time than the first.
  CopyLines from_memory;
  /// Asks for what is in the second cache, into the first.
  CopyLines from_cache;
};

/// Those for any processor.
LineCopiers plain_line_copiers() noexcept;
/// The fastest that this one has.
const LineCopiers& line_copiers() noexcept;

}  // namespace tenfold

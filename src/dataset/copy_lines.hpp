#pragma once

#include <cstddef>

namespace tenfold {

inline constexpr std::size_t kCacheLineBytes = 64;

/// Copies `size_bytes`, at least a line, from `from` to `out`, and asks, line by line, for as much
/// of what begins at `coming`, which may be anywhere: it is not read.
using CopyLines = void (*)(const std::byte* coming, const std::byte* from, std::size_t size_bytes,
                           std::byte* out) noexcept;

/// One place in each of two rows.
struct TwoPlaces {
  const std::byte* first;
  const std::byte* second;
};

/// The same of two rows at once, whose requests to memory do not wait for each other: `out` is
/// where the first goes, the second goes `apart_bytes` behind it.
using CopyTwoLines = void (*)(TwoPlaces coming, TwoPlaces from, std::size_t size_bytes,
                              std::byte* out, std::size_t apart_bytes) noexcept;

struct LineCopiers {
  /// Asks for what comes from memory, into the second cache: that has many more requests under way
  /// at a time than the first.
  CopyLines from_memory;
  /// Asks for what is in the second cache, into the first.
  CopyLines from_cache;
  /// As from_memory.
  CopyTwoLines two_from_memory;
  /// Past the caches, which need not read what is written over, to whole lines: `out`, and how far
  /// the second row is apart, are multiples of a line. end_streaming() comes last.
  CopyTwoLines two_past_caches;
};

/// What two_past_caches wrote is seen by other threads as what is written afterwards is.
void end_streaming() noexcept;

/// Those for any processor.
LineCopiers plain_line_copiers() noexcept;
/// The fastest that this one has.
const LineCopiers& line_copiers() noexcept;

}  // namespace tenfold

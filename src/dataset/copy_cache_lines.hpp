#pragma once

#include <cstddef>

namespace tenfold {

inline constexpr std::size_t kCacheLineBytes = 64;

/// Copies `size_bytes` (at least one cache line) from `from` to `out`. For each cache line that it
/// copies, prefetches one line of the `size_bytes` at `coming`. `coming` may be an invalid address,
/// because prefetches do not fault.
using CopyCacheLines = void (*)(const std::byte* coming, const std::byte* from,
                                std::size_t size_bytes, std::byte* out) noexcept;

/// The same position in each of two rows.
struct TwoSources {
  const std::byte* first;
  const std::byte* second;
};

/// Copies two rows at once, so that their memory requests overlap. The first row goes to `out`, the
/// second to `out + second_offset_bytes`.
using CopyTwoRows = void (*)(TwoSources coming, TwoSources from, std::size_t size_bytes,
                             std::byte* out, std::size_t second_offset_bytes) noexcept;

struct CacheLineCopiers {
  /// Prefetches from memory to L2, which allows many more outstanding requests than L1.
  CopyCacheLines from_memory;
  /// Prefetches from L2 to L1.
  CopyCacheLines from_cache;
  /// Like from_memory, for two rows.
  CopyTwoRows two_from_memory;
  /// Like two_from_memory, but on x86-64 with non-temporal stores, which bypass the caches and do
  /// not first read the lines that they overwrite. `out`, `size_bytes` and `second_offset_bytes`
  /// must be multiples of kCacheLineBytes. Call end_streaming() after the last copy.
  CopyTwoRows two_past_caches;
};

/// A store fence: other threads see the writes of two_past_caches before any later write of this
/// thread.
void end_streaming() noexcept;

/// The implementations for any CPU.
CacheLineCopiers plain_line_copiers() noexcept;
/// The fastest implementations for this CPU.
const CacheLineCopiers& cache_line_copiers() noexcept;

}  // namespace tenfold

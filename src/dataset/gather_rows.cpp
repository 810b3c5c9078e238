#include "dataset/gather_rows.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/prefetch.hpp"
#include "dataset/copy_cache_lines.hpp"

namespace tenfold {
namespace {

/// Prefetch distance for rows in memory. Memory latency is about 100 ns, and in this time a core
/// copies a few KiB.
constexpr std::size_t kAheadBytes = 4096;
/// Prefetch distance in each row if two rows are copied at once.
constexpr std::size_t kAheadOfEachBytes = kAheadBytes / 2;
/// gather_wide() bypasses the caches if rows are whole cache lines and the result has at least this
/// size. Such a result would be evicted from L2 before the caller reads it, and would evict from L3
/// the rows that are copied next.
constexpr std::size_t kStreamedBytes = std::size_t{4} << 20U;
/// Maximum size of a block of rows. Two blocks of this size and their copies fit in an L2 of 256
/// KiB.
constexpr std::size_t kBlockBytes = 32 << 10U;
constexpr std::size_t kMaxBlockRows = 128;
/// Distance of prefetches from L2 to L1.
constexpr std::size_t kNearBytes = 2048;

/// The rows to copy: the part of each row (empty if there is only one part), and the index of each
/// row in its part.
struct ChosenRows {
  std::span<const std::uint32_t> parts;
  std::span<const std::int64_t> rows;

  const std::byte* address(const RowCopy& column, std::size_t i) const noexcept {
    const RowSource& source = column.sources[parts.empty() ? 0 : parts[i]];
    return source.base + static_cast<std::uint64_t>(rows[i]) * source.stride_bytes;
  }
};

/// True for the row sizes that copy_with_prefetch() copies with an inlined memcpy (copy_words()).
bool is_one_word(std::size_t row_bytes) {
  return row_bytes <= kCacheLineBytes && std::has_single_bit(row_bytes);
}

/// Some rows of one column.
class RowBlock {
 public:
  /// Sets the block to the rows [begin, begin + count) of `chosen`. Computes their addresses once,
  /// outside the loops that prefetch and copy, so that rows of several parts are copied as fast as
  /// rows of one part.
  void set(const RowCopy& column, const ChosenRows& chosen, std::size_t begin, std::size_t count) {
    row_bytes_ = static_cast<std::size_t>(column.row_bytes);
    last_byte_ = is_one_word(row_bytes_) ? 0 : row_bytes_ - 1;
    count_ = count;
    out_ = column.out + begin * row_bytes_;
    const std::int64_t* rows = chosen.rows.data() + begin;
    if (chosen.parts.empty()) {
      const RowSource source = column.sources[0];
      for (std::size_t i = 0; i < count; ++i) {
        addresses_[i] = source.base + static_cast<std::uint64_t>(rows[i]) * source.stride_bytes;
      }
      return;
    }
    const RowSource* sources = column.sources.data();
    const std::uint32_t* parts = chosen.parts.data() + begin;
    for (std::size_t i = 0; i < count; ++i) {
      const RowSource& source = sources[parts[i]];
      addresses_[i] = source.base + static_cast<std::uint64_t>(rows[i]) * source.stride_bytes;
    }
  }
  void clear() noexcept { count_ = 0; }
  bool is_empty() const noexcept { return count_ == 0; }

  /// Prefetches all rows to L2, which allows many more outstanding requests than L1 and is a third
  /// faster.
  void prefetch_all() const noexcept {
    for (std::size_t i = 0; i < count_; ++i) prefetch_row(i);
  }

  /// Copies the rows of this block. For each row, prefetches one row of `next`, which must not have
  /// more rows than this block.
  void copy_with_prefetch(const RowBlock& next) const {
    switch (row_bytes_) {
      case 1:
        return copy_words<1>(next);
      case 2:
        return copy_words<2>(next);
      case 4:
        return copy_words<4>(next);
      case 8:
        return copy_words<8>(next);
      case 16:
        return copy_words<16>(next);
      case 32:
        return copy_words<32>(next);
      case 64:
        return copy_words<64>(next);
      default:
        break;
    }
    std::byte* const out = out_;
    const std::size_t row_bytes = row_bytes_;
    if (row_bytes < kCacheLineBytes) {
      return each_with_prefetch(next, [=, this](std::size_t i) {
        std::memcpy(out + i * row_bytes, addresses_[i], row_bytes);
      });
    }
    const std::size_t near = std::max<std::size_t>(kNearBytes / row_bytes, 1);
    const CopyCacheLines copy_lines = cache_line_copiers().from_cache;
    each_with_prefetch(next, [=, this](std::size_t i) {
      const std::byte* coming = addresses_[std::min(i + near, count_ - 1)];
      copy_lines(coming, addresses_[i], row_bytes, out + i * row_bytes);
    });
  }

 private:
  void prefetch_row(std::size_t i) const noexcept {
    const std::byte* row = addresses_[i];
    for (std::size_t at = 0; at < last_byte_; at += kCacheLineBytes) {
      base::prefetch(row + at);
    }
    base::prefetch(row + last_byte_);
  }

  template <class CopyRow>
  void each_with_prefetch(const RowBlock& next, const CopyRow& copy_row) const {
    const std::size_t count = count_;
    const std::size_t asked = next.count_;
    for (std::size_t i = 0; i < asked; ++i) {
      next.prefetch_row(i);
      copy_row(i);
    }
    for (std::size_t i = asked; i < count; ++i) copy_row(i);
  }

  template <std::size_t kRowBytes>
  void copy_words(const RowBlock& next) const {
    std::byte* const out = out_;
    each_with_prefetch(next, [=, this](std::size_t i) {
      std::memcpy(out + i * kRowBytes, addresses_[i], kRowBytes);
    });
  }

  std::array<const std::byte*, kMaxBlockRows> addresses_;
  std::size_t row_bytes_ = 0;
  /// Offset of the last byte to prefetch in a row. It is 0 if is_one_word(row_bytes_), because
  /// nearly all of these rows are within one cache line.
  std::size_t last_byte_ = 0;
  std::size_t count_ = 0;
  std::byte* out_ = nullptr;
};

/// Copies rows of more than kAheadBytes, two at a time, so that their memory requests overlap. For
/// each cache line that is copied, prefetches one line at a fixed distance ahead, so that the
/// number of outstanding requests is nearly constant. Prefetching a whole row at a time was three
/// times slower.
void gather_wide(const RowCopy& column, const ChosenRows& chosen) {
  const auto row_bytes = static_cast<std::size_t>(column.row_bytes);
  const std::size_t count = chosen.rows.size();
  const CacheLineCopiers& copiers = cache_line_copiers();
  const bool has_whole_lines = row_bytes % kCacheLineBytes == 0 &&
                               reinterpret_cast<std::uintptr_t>(column.out) % kCacheLineBytes == 0;
  const bool streams = has_whole_lines && row_bytes * count >= kStreamedBytes;
  const CopyTwoRows copy_two = streams ? copiers.two_past_caches : copiers.two_from_memory;
  const auto two_from = [&](std::size_t i) -> TwoSources {
    return {chosen.address(column, std::min(i, count - 1)),
            chosen.address(column, std::min(i + 1, count - 1))};
  };
  TwoSources from = two_from(0);
  for (std::size_t at = 0; at < kAheadOfEachBytes; at += kCacheLineBytes) {
    base::prefetch(from.first + at);
    base::prefetch(from.second + at);
  }
  const std::size_t within = (row_bytes - kAheadOfEachBytes) / kCacheLineBytes * kCacheLineBytes;
  std::byte* out = column.out;
  for (std::size_t i = 0; i + 1 < count; i += 2, out += 2 * row_bytes) {
    const TwoSources coming = two_from(i + 2);
    copy_two({from.first + kAheadOfEachBytes, from.second + kAheadOfEachBytes}, from, within, out,
             row_bytes);
    copy_two(coming, {from.first + within, from.second + within}, row_bytes - within, out + within,
             row_bytes);
    from = coming;
  }
  if (count % 2 == 1) copiers.from_memory(from.first, from.first, row_bytes, out);
  if (streams) end_streaming();
}

/// Iterates over the blocks of the columns for which is_narrow() is true. Visits the first block of
/// each column, then the second block of each column, and so on.
class Blocks {
 public:
  Blocks(std::span<const RowCopy> columns, const ChosenRows& chosen)
      : columns_(columns), chosen_(chosen) {
    std::size_t widest = 1;
    for (const RowCopy& column : columns) {
      if (is_narrow(column)) widest = std::max(widest, static_cast<std::size_t>(column.row_bytes));
      any_ = any_ || is_narrow(column);
    }
    block_rows_ = std::min(kBlockBytes / widest, kMaxBlockRows);
  }

  /// Sets `block` to the next block, or clears it if there is none.
  void take_next(RowBlock& block) {
    for (; any_ && begin_ < chosen_.rows.size(); begin_ += block_rows_, column_ = 0) {
      while (column_ < columns_.size()) {
        const RowCopy& column = columns_[column_++];
        if (!is_narrow(column)) continue;
        block.set(column, chosen_, begin_, std::min(block_rows_, chosen_.rows.size() - begin_));
        return;
      }
    }
    block.clear();
  }

 private:
  static bool is_narrow(const RowCopy& column) noexcept {
    return column.row_bytes > 0 && column.row_bytes <= kAheadBytes;
  }

  std::span<const RowCopy> columns_;
  const ChosenRows& chosen_;
  std::size_t block_rows_ = 0;
  std::size_t column_ = 0;
  std::size_t begin_ = 0;
  bool any_ = false;
};

}  // namespace

void copy_with_prefetch(const std::byte* coming, const std::byte* from, std::size_t size_bytes,
                        std::byte* out) {
  if (size_bytes >= kCacheLineBytes) {
    return cache_line_copiers().from_memory(coming, from, size_bytes, out);
  }
  base::prefetch<base::kL1>(coming);
  std::memcpy(out, from, size_bytes);
}

void gather_rows(std::span<const RowCopy> columns, std::span<const std::uint32_t> parts,
                 std::span<const std::int64_t> rows) {
  if (rows.empty()) return;
  const ChosenRows chosen{parts, rows};
  Blocks blocks(columns, chosen);
  std::array<RowBlock, 2> two;
  RowBlock* now = &two[0];
  RowBlock* next = &two[1];
  blocks.take_next(*now);
  now->prefetch_all();
  while (!now->is_empty()) {
    blocks.take_next(*next);
    now->copy_with_prefetch(*next);
    std::swap(now, next);
  }
  for (const RowCopy& column : columns) {
    if (column.row_bytes > kAheadBytes) gather_wide(column, chosen);
  }
}

void gather_rows(const RowSource& source, std::uint64_t row_bytes,
                 std::span<const std::int64_t> rows, std::byte* out) {
  const RowCopy column{std::span(&source, 1), row_bytes, out};
  gather_rows(std::span(&column, 1), {}, rows);
}

}  // namespace tenfold

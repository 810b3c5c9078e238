#include "stores/gather_rows.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace tenfold {
namespace {

constexpr std::size_t kLineBytes = 64;
/// Memory answers after about 100 ns, in which a core copies a few KiB.
constexpr std::size_t kAheadBytes = 4096;
/// Of the widest column: two blocks and what is copied fit into the second cache of any processor.
constexpr std::size_t kBlockBytes = 32 << 10U;
constexpr std::size_t kMaxBlockRows = 128;
constexpr std::size_t kMinBlockRows = 8;
/// What is in the second cache already is brought into the first so far ahead.
constexpr std::size_t kNearBytes = 2048;

/// Addresses of the rows of one part.
struct OfOnePart {
  const std::byte* base;
  std::uint64_t stride_bytes;
  const std::int64_t* rows;
  const std::byte* operator()(std::size_t i) const noexcept {
    return base + static_cast<std::uint64_t>(rows[i]) * stride_bytes;
  }
};

/// Addresses of rows of several.
struct OfParts {
  const RowSource* sources;
  const std::uint32_t* parts;
  const std::int64_t* rows;
  const std::byte* operator()(std::size_t i) const noexcept {
    const RowSource& source = sources[parts[i]];
    return source.base + static_cast<std::uint64_t>(rows[i]) * source.stride_bytes;
  }
};

/// Rows of a length that an instruction or two copy.
bool is_one_word(std::size_t row_bytes) {
  return row_bytes <= kLineBytes && std::has_single_bit(row_bytes);
}

/// Some rows of one column.
template <class Address>
struct Block {
  Address address;
  std::size_t row_bytes;
  std::size_t count;
  std::byte* out;
  /// The last byte that has to be asked for: a word lies in one line, nearly always.
  std::size_t last_byte = is_one_word(row_bytes) ? 0 : row_bytes - 1;

  /// Into the second cache, which has many more requests under way at a time than the first: a
  /// third faster.
  void ask_for(std::size_t i) const noexcept {
    const std::byte* row = address(i);
    for (std::size_t at = 0; at < last_byte; at += kLineBytes) __builtin_prefetch(row + at, 0, 2);
    __builtin_prefetch(row + last_byte, 0, 2);
  }
};

/// Copies one block, row by row, and asks for as many rows of the next, which is no longer.
template <class Address, class CopyRow>
void copy_rows(const Block<Address>& now, const Block<Address>& next, const CopyRow& copy_row) {
  for (std::size_t i = 0; i < next.count; ++i) {
    next.ask_for(i);
    copy_row(i);
  }
  for (std::size_t i = next.count; i < now.count; ++i) copy_row(i);
}

template <std::size_t kRowBytes, class Address>
void copy_words(const Block<Address>& now, const Block<Address>& next) {
  copy_rows(now, next, [&](std::size_t i) {
    std::memcpy(now.out + i * kRowBytes, now.address(i), kRowBytes);
  });
}

void copy_lines(const std::byte* coming, const std::byte* from, std::size_t size_bytes,
                std::byte* out) {
  const std::size_t last = size_bytes - kLineBytes;
  for (std::size_t at = 0; at < last; at += kLineBytes) {
    __builtin_prefetch(coming + at);
    std::memcpy(out + at, from + at, kLineBytes);
  }
  __builtin_prefetch(coming + last);
  std::memcpy(out + last, from + last, kLineBytes);
}

template <class Address>
void copy_block(const Block<Address>& now, const Block<Address>& next) {
  switch (now.row_bytes) {
    case 1:
      return copy_words<1>(now, next);
    case 2:
      return copy_words<2>(now, next);
    case 4:
      return copy_words<4>(now, next);
    case 8:
      return copy_words<8>(now, next);
    case 16:
      return copy_words<16>(now, next);
    case 32:
      return copy_words<32>(now, next);
    case 64:
      return copy_words<64>(now, next);
    default:
      break;
  }
  if (now.row_bytes < kLineBytes) {
    return copy_rows(now, next, [&](std::size_t i) {
      std::memcpy(now.out + i * now.row_bytes, now.address(i), now.row_bytes);
    });
  }
  const std::size_t near = std::max<std::size_t>(kNearBytes / now.row_bytes, 1);
  copy_rows(now, next, [&](std::size_t i) {
    const std::byte* coming = now.address(std::min(i + near, now.count - 1));
    copy_lines(coming, now.address(i), now.row_bytes, now.out + i * now.row_bytes);
  });
}

/// Rows of more than kAheadBytes. With each line that is copied one is asked for, so much further
/// on in what will be copied: so a few are always under way, and never more than the processor can
/// have. Asking for whole rows at a time was three times slower.
template <class Address>
void gather_wide(const Block<Address>& rows) {
  for (std::size_t at = 0; at < kAheadBytes; at += kLineBytes) {
    __builtin_prefetch(rows.address(0) + at);
  }
  const std::size_t within = (rows.row_bytes - kAheadBytes) / kLineBytes * kLineBytes;
  for (std::size_t i = 0; i < rows.count; ++i) {
    const std::byte* from = rows.address(i);
    std::byte* out = rows.out + i * rows.row_bytes;
    for (std::size_t at = 0; at < within; at += kLineBytes) {
      __builtin_prefetch(from + kAheadBytes + at);
      std::memcpy(out + at, from + at, kLineBytes);
    }
    const std::byte* coming = rows.address(std::min(i + 1, rows.count - 1));
    copy_lines(coming, from + within, rows.row_bytes - within, out + within);
  }
}

/// The blocks of all columns whose rows are not wide: the first rows of each column, then the ones
/// after them.
template <class BlockOf>
void gather_in_blocks(std::span<const RowCopy> columns, std::size_t num_rows,
                      const BlockOf& block_of) {
  std::size_t widest = 0;
  for (const RowCopy& column : columns) {
    const auto row_bytes = static_cast<std::size_t>(column.row_bytes);
    if (row_bytes <= kAheadBytes) widest = std::max(widest, row_bytes);
  }
  if (widest == 0) return;
  const std::size_t block_rows = std::clamp(kBlockBytes / widest, kMinBlockRows, kMaxBlockRows);
  std::size_t column = 0;
  std::size_t begin = 0;
  const auto take_next = [&] {
    for (;;) {
      if (column == columns.size()) {
        column = 0;
        begin = std::min(begin + block_rows, num_rows);
      }
      if (begin == num_rows) return block_of(columns[0], begin, begin);
      const RowCopy& found = columns[column++];
      if (found.row_bytes == 0 || found.row_bytes > kAheadBytes) continue;
      return block_of(found, begin, std::min(begin + block_rows, num_rows));
    }
  };
  auto now = take_next();
  for (std::size_t i = 0; i < now.count; ++i) now.ask_for(i);
  while (now.count > 0) {
    const auto next = take_next();
    copy_block(now, next);
    now = next;
  }
}

template <class BlockOf>
void gather(std::span<const RowCopy> columns, std::size_t num_rows, const BlockOf& block_of) {
  if (num_rows == 0) return;
  gather_in_blocks(columns, num_rows, block_of);
  for (const RowCopy& column : columns) {
    if (column.row_bytes > kAheadBytes) gather_wide(block_of(column, 0, num_rows));
  }
}

}  // namespace

void copy_asking_for(const std::byte* coming, const std::byte* from, std::size_t size_bytes,
                     std::byte* out) {
  if (size_bytes >= kLineBytes) return copy_lines(coming, from, size_bytes, out);
  __builtin_prefetch(coming);
  std::memcpy(out, from, size_bytes);
}

void gather_rows(std::span<const RowCopy> columns, std::span<const std::uint32_t> parts,
                 std::span<const std::int64_t> rows) {
  const auto place = [](const RowCopy& column, std::size_t begin) {
    return column.out + begin * column.row_bytes;
  };
  if (parts.empty()) {
    return gather(columns, rows.size(),
                  [&](const RowCopy& column, std::size_t begin, std::size_t end) {
                    const RowSource& source = column.sources[0];
                    return Block<OfOnePart>{{source.base, source.stride_bytes, rows.data() + begin},
                                            static_cast<std::size_t>(column.row_bytes),
                                            end - begin,
                                            place(column, begin)};
                  });
  }
  gather(columns, rows.size(), [&](const RowCopy& column, std::size_t begin, std::size_t end) {
    return Block<OfParts>{{column.sources.data(), parts.data() + begin, rows.data() + begin},
                          static_cast<std::size_t>(column.row_bytes),
                          end - begin,
                          place(column, begin)};
  });
}

void gather_rows(const RowSource& source, std::uint64_t row_bytes,
                 std::span<const std::int64_t> rows, std::byte* out) {
  const RowCopy column{std::span(&source, 1), row_bytes, out};
  gather_rows(std::span(&column, 1), {}, rows);
}

}  // namespace tenfold

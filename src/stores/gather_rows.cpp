#include "stores/gather_rows.hpp"

#include <algorithm>
#include <cstring>

namespace tenfold {
namespace {

constexpr std::size_t kLineBytes = 64;
/// Memory answers after about 100 ns, in which a core copies a few KiB.
constexpr std::size_t kAheadBytes = 4096;
constexpr std::size_t kAheadSmallRows = 24;

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

template <std::size_t kRowBytes, class Address>
void gather_small(const Address& address, std::size_t count, std::byte* out) {
  const std::size_t with_prefetch = count > kAheadSmallRows ? count - kAheadSmallRows : 0;
  for (std::size_t i = 0; i < with_prefetch; ++i) {
    __builtin_prefetch(address(i + kAheadSmallRows));
    std::memcpy(out + i * kRowBytes, address(i), kRowBytes);
  }
  for (std::size_t i = with_prefetch; i < count; ++i) {
    std::memcpy(out + i * kRowBytes, address(i), kRowBytes);
  }
}

/// Rows shorter than a line, of a length that no instruction copies.
template <class Address>
void gather_odd(const Address& address, std::size_t row_bytes, std::size_t count, std::byte* out) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::byte* coming = address(std::min(i + kAheadSmallRows, count - 1));
    __builtin_prefetch(coming);
    __builtin_prefetch(coming + row_bytes - 1);
    std::memcpy(out + i * row_bytes, address(i), row_bytes);
  }
}

/// Rows of a line or more. With each line that is copied one is asked for, some KiB further on in
/// what will be copied: so a few are always under way, and never more than the processor can have.
/// Asking for whole rows at a time was three times slower.
template <class Address>
void gather_lines(const Address& address, std::size_t row_bytes, std::size_t count,
                  std::byte* out) {
  const std::size_t ahead = std::clamp<std::size_t>(kAheadBytes / row_bytes, 1, kAheadSmallRows);
  const std::size_t ahead_in_row = row_bytes > kAheadBytes ? kAheadBytes : 0;
  for (std::size_t i = 0; i < std::min(ahead, count); ++i) {
    for (std::size_t at = 0; at < std::min(row_bytes, kAheadBytes); at += kLineBytes) {
      __builtin_prefetch(address(i) + at);
    }
  }
  const std::size_t last = row_bytes - kLineBytes;
  for (std::size_t i = 0; i < count; ++i) {
    const std::byte* from = address(i);
    const auto copy_lines = [&](std::size_t begin, std::size_t end, const std::byte* coming) {
      for (std::size_t at = begin; at < end; at += kLineBytes) {
        __builtin_prefetch(coming + (at - begin));
        std::memcpy(out + at, from + at, kLineBytes);
      }
    };
    std::size_t in_row = 0;
    if (ahead_in_row > 0) {
      in_row = (row_bytes - ahead_in_row) / kLineBytes * kLineBytes;
      copy_lines(0, in_row, from + ahead_in_row);
    }
    const std::byte* coming = address(std::min(i + ahead, count - 1));
    copy_lines(in_row, last, coming);
    __builtin_prefetch(coming + std::min(row_bytes, kAheadBytes) - 1);
    std::memcpy(out + last, from + last, kLineBytes);
    out += row_bytes;
  }
}

template <class Address>
void gather(const Address& address, std::uint64_t row_bytes, std::size_t count, std::byte* out) {
  switch (row_bytes) {
    case 0:
      return;
    case 1:
      return gather_small<1>(address, count, out);
    case 2:
      return gather_small<2>(address, count, out);
    case 4:
      return gather_small<4>(address, count, out);
    case 8:
      return gather_small<8>(address, count, out);
    case 16:
      return gather_small<16>(address, count, out);
    case 32:
      return gather_small<32>(address, count, out);
    case 64:
      return gather_small<64>(address, count, out);
    default:
      break;
  }
  const auto size = static_cast<std::size_t>(row_bytes);
  if (size < kLineBytes) return gather_odd(address, size, count, out);
  gather_lines(address, size, count, out);
}

}  // namespace

void copy_asking_for(const std::byte* coming, const std::byte* from, std::size_t size_bytes,
                     std::byte* out) {
  if (size_bytes < kLineBytes) {
    __builtin_prefetch(coming);
    std::memcpy(out, from, size_bytes);
    return;
  }
  const std::size_t last = size_bytes - kLineBytes;
  for (std::size_t at = 0; at < last; at += kLineBytes) {
    __builtin_prefetch(coming + at);
    std::memcpy(out + at, from + at, kLineBytes);
  }
  __builtin_prefetch(coming + last);
  std::memcpy(out + last, from + last, kLineBytes);
}

void gather_rows(const RowSource& source, std::uint64_t row_bytes,
                 std::span<const std::int64_t> rows, std::byte* out) {
  gather(OfOnePart{source.base, source.stride_bytes, rows.data()}, row_bytes, rows.size(), out);
}

void gather_rows(std::span<const RowSource> sources, std::uint64_t row_bytes,
                 std::span<const std::uint32_t> parts, std::span<const std::int64_t> rows,
                 std::byte* out) {
  gather(OfParts{sources.data(), parts.data(), rows.data()}, row_bytes, rows.size(), out);
}

}  // namespace tenfold

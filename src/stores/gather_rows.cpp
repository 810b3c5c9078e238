#include "stores/gather_rows.hpp"

#include <algorithm>
#include <cstring>

namespace tenfold {
namespace {

constexpr std::size_t kLineBytes = 64;
/// Memory answers after about 100 ns, in which a core copies a few KiB.
constexpr std::size_t kAheadBytes = 4096;
constexpr std::size_t kAheadSmallRows = 24;
/// The start of a row is enough: the processor sees by itself that the rest is read in order.
constexpr std::size_t kMaxAheadLines = 16;

template <std::size_t kRowBytes>
void gather_small(const std::byte* base, std::uint64_t stride_bytes,
                  std::span<const std::int64_t> rows, std::byte* out) {
  const auto address = [&](std::size_t i) {
    return base + static_cast<std::uint64_t>(rows[i]) * stride_bytes;
  };
  const std::size_t count = rows.size();
  const std::size_t with_prefetch = count > kAheadSmallRows ? count - kAheadSmallRows : 0;
  for (std::size_t i = 0; i < with_prefetch; ++i) {
    __builtin_prefetch(address(i + kAheadSmallRows));
    std::memcpy(out + i * kRowBytes, address(i), kRowBytes);
  }
  for (std::size_t i = with_prefetch; i < count; ++i) {
    std::memcpy(out + i * kRowBytes, address(i), kRowBytes);
  }
}

void gather_large(const std::byte* base, std::size_t row_bytes, std::uint64_t stride_bytes,
                  std::span<const std::int64_t> rows, std::byte* out) {
  const auto address = [&](std::size_t i) {
    return base + static_cast<std::uint64_t>(rows[i]) * stride_bytes;
  };
  const std::size_t ahead = std::clamp<std::size_t>(kAheadBytes / row_bytes, 1, kAheadSmallRows);
  const std::size_t lines = std::min(kMaxAheadLines, (row_bytes - 1) / kLineBytes + 1);
  const std::size_t count = rows.size();
  const auto prefetch = [&](std::size_t i) {
    const std::byte* row = address(i);
    for (std::size_t line = 0; line < lines; ++line) __builtin_prefetch(row + line * kLineBytes);
  };
  for (std::size_t i = 0; i < std::min(ahead, count); ++i) prefetch(i);
  for (std::size_t i = 0; i < count; ++i) {
    if (i + ahead < count) prefetch(i + ahead);
    std::memcpy(out + i * row_bytes, address(i), row_bytes);
  }
}

}  // namespace

void gather_rows(const std::byte* base, std::uint64_t row_bytes, std::uint64_t stride_bytes,
                 std::span<const std::int64_t> rows, std::byte* out) {
  switch (row_bytes) {
    case 0:
      return;
    case 1:
      return gather_small<1>(base, stride_bytes, rows, out);
    case 2:
      return gather_small<2>(base, stride_bytes, rows, out);
    case 4:
      return gather_small<4>(base, stride_bytes, rows, out);
    case 8:
      return gather_small<8>(base, stride_bytes, rows, out);
    case 16:
      return gather_small<16>(base, stride_bytes, rows, out);
    case 32:
      return gather_small<32>(base, stride_bytes, rows, out);
    case 64:
      return gather_small<64>(base, stride_bytes, rows, out);
    default:
      return gather_large(base, static_cast<std::size_t>(row_bytes), stride_bytes, rows, out);
  }
}

}  // namespace tenfold

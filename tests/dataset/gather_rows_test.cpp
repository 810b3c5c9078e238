#include "dataset/gather_rows.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <span>
#include <vector>

#include "dataset/copy_cache_lines.hpp"

namespace tenfold {
namespace {

/// Bytes that identify their position.
std::vector<std::byte> numbered(std::size_t size_bytes) {
  std::vector<std::byte> bytes(size_bytes);
  for (std::size_t i = 0; i < size_bytes; ++i) {
    bytes[i] = static_cast<std::byte>(i * 2'654'435'761U >> 13U);
  }
  return bytes;
}

std::vector<std::byte> one_by_one(const std::vector<std::byte>& from, std::size_t row_bytes,
                                  std::size_t stride_bytes, const std::vector<std::int64_t>& rows) {
  std::vector<std::byte> out;
  for (const std::int64_t row : rows) {
    const auto begin = from.begin() + row * static_cast<std::int64_t>(stride_bytes);
    out.insert(out.end(), begin, begin + static_cast<std::int64_t>(row_bytes));
  }
  return out;
}

void expect_equal_to_one_by_one(std::size_t row_bytes, std::size_t stride_bytes,
                                const std::vector<std::int64_t>& rows) {
  constexpr std::size_t kNumRows = 50;
  constexpr auto kUntouched = std::byte{0xA5};
  // The rows begin at an unaligned address, as in a safetensors file.
  const std::vector<std::byte> from = numbered(1 + kNumRows * stride_bytes);
  std::vector<std::byte> out(rows.size() * row_bytes + 1, kUntouched);
  gather_rows({from.data() + 1, stride_bytes}, row_bytes, rows, out.data());
  const std::vector<std::byte> shifted(from.begin() + 1, from.end());
  std::vector<std::byte> expected = one_by_one(shifted, row_bytes, stride_bytes, rows);
  expected.push_back(kUntouched);
  ASSERT_EQ(out, expected) << row_bytes << " bytes every " << stride_bytes << ", " << rows.size()
                           << " rows";
}

TEST(GatherRows, CopiesRowsOfEveryLengthToTheByte) {
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 0; i < 70; ++i) rows.push_back(i * 37 % 50);
  for (std::size_t row_bytes = 0; row_bytes <= 200; ++row_bytes) {
    expect_equal_to_one_by_one(row_bytes, row_bytes, rows);
    expect_equal_to_one_by_one(row_bytes, row_bytes + 3, rows);
  }
  for (const std::size_t row_bytes :
       std::initializer_list<std::size_t>{336, 1023, 2048, 4095, 4096, 4097, 4160, 5000, 28'224}) {
    expect_equal_to_one_by_one(row_bytes, row_bytes, rows);
  }
}

TEST(GatherRows, CopiesAnyNumberOfRows) {
  for (const std::size_t row_bytes :
       std::initializer_list<std::size_t>{1, 8, 12, 64, 100, 336, 5000}) {
    std::vector<std::int64_t> rows;
    for (std::int64_t i = 0; i < 40; ++i) {
      expect_equal_to_one_by_one(row_bytes, row_bytes, rows);
      rows.push_back(49 - i);
    }
  }
}

TEST(GatherRows, CopiesRowsOfSeveralParts) {
  const std::vector<std::byte> from = numbered(3 * 20'000);
  for (const std::size_t row_bytes :
       std::initializer_list<std::size_t>{1, 2, 4, 8, 12, 16, 32, 63, 64, 100, 336, 5000}) {
    const std::size_t strides[] = {row_bytes, row_bytes + 5, row_bytes};
    const std::size_t begins[] = {0, 20'001, 40'000};
    const std::vector<RowSource> sources = {{from.data() + begins[0], strides[0]},
                                            {from.data() + begins[1], strides[1]},
                                            {from.data() + begins[2], strides[2]}};
    std::vector<std::uint32_t> parts;
    std::vector<std::int64_t> rows;
    std::vector<std::byte> expected;
    for (std::size_t i = 0; i < 90; ++i) {
      parts.push_back(static_cast<std::uint32_t>(i * i % 3));
      rows.push_back(static_cast<std::int64_t>(i % 4));
      const std::size_t begin = begins[parts[i]] + i % 4 * strides[parts[i]];
      const auto row = from.begin() + static_cast<std::ptrdiff_t>(begin);
      expected.insert(expected.end(), row, row + static_cast<std::ptrdiff_t>(row_bytes));
    }
    std::vector<std::byte> out(expected.size());
    const RowCopy column{sources, row_bytes, out.data()};
    gather_rows(std::span(&column, 1), parts, rows);
    ASSERT_EQ(out, expected) << row_bytes;
  }
}

TEST(GatherRows, CopiesColumnsOfAnyWidthsTogether) {
  constexpr std::size_t kNumRows = 6;
  const std::vector<std::byte> from = numbered(kNumRows * 10'000);
  // Words, odd sizes, cache lines, rows too wide for a block, and a column without bytes.
  const std::size_t widths[] = {8, 0, 336, 1, 5000, 100, 4096, 13, 64, 9000};
  for (const std::size_t num_rows : {0U, 1U, 7U, 8U, 9U, 300U, 513U}) {
    std::vector<std::int64_t> rows;
    for (std::size_t i = 0; i < num_rows; ++i) rows.push_back(static_cast<std::int64_t>(i * i % 6));
    std::vector<RowSource> sources;
    std::vector<std::vector<std::byte>> outs;
    for (const std::size_t width : widths) {
      sources.push_back({from.data() + width % 7, width});
      outs.emplace_back(num_rows * width + 1);
    }
    std::vector<RowCopy> columns;
    for (std::size_t i = 0; i < std::size(widths); ++i) {
      columns.push_back({std::span(sources).subspan(i, 1), widths[i], outs[i].data()});
    }
    gather_rows(columns, {}, rows);
    for (std::size_t i = 0; i < std::size(widths); ++i) {
      const std::vector<std::byte> shifted(
          from.begin() + static_cast<std::ptrdiff_t>(widths[i] % 7), from.end());
      std::vector<std::byte> expected = one_by_one(shifted, widths[i], widths[i], rows);
      expected.emplace_back();
      ASSERT_EQ(outs[i], expected) << widths[i] << " bytes, " << num_rows << " rows";
    }
  }
}

TEST(CopyCacheLines, EveryKernelCopiesAnyNumberOfBytesFromOneLine) {
  const std::vector<std::byte> from = numbered(10'000);
  const CacheLineCopiers plain = plain_line_copiers();
  for (const CopyCacheLines copy :
       {plain.from_memory, plain.from_cache, cache_line_copiers().from_memory,
        cache_line_copiers().from_cache}) {
    for (std::size_t size = kCacheLineBytes; size <= 400; ++size) {
      std::vector<std::byte> out(size + 1);
      copy(from.data() + 9000, from.data() + 7, size, out.data());
      const auto begin = from.begin() + 7;
      std::vector<std::byte> expected(begin, begin + static_cast<std::ptrdiff_t>(size));
      expected.emplace_back();
      ASSERT_EQ(out, expected) << size;
    }
  }
}

TEST(CopyCacheLines, EveryKernelCopiesTwoRowsPerCall) {
  constexpr std::size_t kApart = 512;
  const std::vector<std::byte> from = numbered(10'000);
  const TwoSources rows{from.data() + 7, from.data() + 3001};
  const TwoSources coming{from.data() + 9000, from.data() + 5};
  const auto copied = [&](CopyTwoRows copy, std::size_t size) {
    // Non-temporal stores need whole cache lines.
    alignas(kCacheLineBytes) static std::array<std::byte, 2 * kApart> out;
    out.fill(std::byte{0xA5});
    copy(coming, rows, size, out.data(), kApart);
    return std::vector<std::byte>(out.begin(), out.end());
  };
  const CacheLineCopiers plain = plain_line_copiers();
  for (std::size_t size = kCacheLineBytes; size <= 400; ++size) {
    std::vector<std::byte> expected(2 * kApart, std::byte{0xA5});
    std::memcpy(expected.data(), rows.first, size);
    std::memcpy(expected.data() + kApart, rows.second, size);
    ASSERT_EQ(copied(plain.two_from_memory, size), expected) << size;
    ASSERT_EQ(copied(cache_line_copiers().two_from_memory, size), expected) << size;
    if (size % kCacheLineBytes != 0) continue;
    ASSERT_EQ(copied(plain.two_past_caches, size), expected) << size;
    ASSERT_EQ(copied(cache_line_copiers().two_past_caches, size), expected) << size;
    end_streaming();
  }
}

TEST(GatherRows, CopiesRowsWithNonTemporalStores) {
  constexpr std::size_t kRowBytes = 8192;
  const std::vector<std::byte> from = numbered(9 * kRowBytes + 1);
  for (const std::size_t num_rows : {600U, 601U}) {
    std::vector<std::int64_t> rows;
    for (std::size_t i = 0; i < num_rows; ++i) rows.push_back(static_cast<std::int64_t>(i * i % 9));
    std::vector<std::byte> memory(num_rows * kRowBytes + 2 * kCacheLineBytes);
    for (const std::size_t shift : {std::size_t{0}, std::size_t{1}}) {
      const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
      std::byte* out = memory.data() + (kCacheLineBytes - address % kCacheLineBytes) + shift;
      gather_rows({from.data() + 1, kRowBytes}, kRowBytes, rows, out);
      for (std::size_t i = 0; i < num_rows; ++i) {
        const std::byte* row = from.data() + 1 + static_cast<std::size_t>(rows[i]) * kRowBytes;
        ASSERT_EQ(std::memcmp(out + i * kRowBytes, row, kRowBytes), 0) << i << " of " << num_rows;
      }
    }
  }
}

TEST(CopyWithPrefetch, CopiesAnyNumberOfBytes) {
  const std::vector<std::byte> from = numbered(10'000);
  for (std::size_t size = 0; size <= 300; ++size) {
    std::vector<std::byte> out(size + 1);
    copy_with_prefetch(from.data() + 9000, from.data() + 7, size, out.data());
    const auto begin = from.begin() + 7;
    std::vector<std::byte> expected(begin, begin + static_cast<std::ptrdiff_t>(size));
    expected.emplace_back();
    ASSERT_EQ(out, expected) << size;
  }
}

}  // namespace
}  // namespace tenfold

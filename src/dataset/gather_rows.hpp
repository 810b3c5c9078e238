#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tenfold {

/// Where rows lie: each of `row_bytes`, those of one part `stride_bytes` apart from `base` on.
struct RowSource {
  const std::byte* base = nullptr;
  std::uint64_t stride_bytes = 0;
};

/// Rows of one column that go to `out`, one after the other.
struct RowCopy {
  std::span<const RowSource> sources;  ///< of each part
  std::uint64_t row_bytes = 0;
  std::byte* out = nullptr;
};

/// Copies the same rows of some columns, one block of rows after the other: row rows[i] of
/// sources[parts[i]] (parts empty: of sources[0]) to out + i * row_bytes. Rows are asked for a
/// block before they are copied, because the processor cannot guess where a shuffled one lies.
void gather_rows(std::span<const RowCopy> columns, std::span<const std::uint32_t> parts,
                 std::span<const std::int64_t> rows);

/// The same of one column of one part.
void gather_rows(const RowSource& source, std::uint64_t row_bytes,
                 std::span<const std::int64_t> rows, std::byte* out);

/// Copies `size_bytes` from `from` to `out`, and asks for as much of what begins at `coming`, which
/// may be anywhere: it is not read.
void copy_asking_for(const std::byte* coming, const std::byte* from, std::size_t size_bytes,
                     std::byte* out);

}  // namespace tenfold

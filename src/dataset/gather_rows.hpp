#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tenfold {

/// Location of the rows of one part: the first row is at `base`, and the rows are `stride_bytes`
/// apart.
struct RowSource {
  const std::byte* base = nullptr;
  std::uint64_t stride_bytes = 0;
};

/// Rows of one column to copy consecutively to `out`.
struct RowCopy {
  std::span<const RowSource> sources;  ///< one for each part
  std::uint64_t row_bytes = 0;
  std::byte* out = nullptr;
};

/// Copies the same rows of several columns: row rows[i] of sources[parts[i]] (of sources[0] if
/// `parts` is empty) to out + i * row_bytes. Rows are prefetched before they are copied, because
/// hardware prefetchers cannot predict shuffled rows.
void gather_rows(std::span<const RowCopy> columns, std::span<const std::uint32_t> parts,
                 std::span<const std::int64_t> rows);

/// Copies rows of one column of one part: row rows[i] to out + i * row_bytes.
void gather_rows(const RowSource& source, std::uint64_t row_bytes,
                 std::span<const std::int64_t> rows, std::byte* out);

/// Copies `size_bytes` from `from` to `out`, and prefetches `size_bytes` at `coming`. `coming` may
/// be an invalid address, because prefetches do not fault.
void copy_with_prefetch(const std::byte* coming, const std::byte* from, std::size_t size_bytes,
                        std::byte* out);

}  // namespace tenfold

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

/// Copies rows of one part one after the other to `out`: row rows[i] to out + i * row_bytes. Each
/// is asked for some rows before it is copied, because the processor cannot guess where a shuffled
/// one lies.
void gather_rows(const RowSource& source, std::uint64_t row_bytes,
                 std::span<const std::int64_t> rows, std::byte* out);

/// The same of several parts: row rows[i] of sources[parts[i]].
void gather_rows(std::span<const RowSource> sources, std::uint64_t row_bytes,
                 std::span<const std::uint32_t> parts, std::span<const std::int64_t> rows,
                 std::byte* out);

/// Copies `size_bytes` from `from` to `out`, and asks for as much of what begins at `coming`, which
/// may be anywhere: it is not read.
void copy_asking_for(const std::byte* coming, const std::byte* from, std::size_t size_bytes,
                     std::byte* out);

}  // namespace tenfold

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tenfold {

/// Copies rows of `row_bytes`, `stride_bytes` apart from `base` on, one after the other to `out`:
/// row rows[i] to out + i * row_bytes. Each is asked for some rows before it is copied, because the
/// processor cannot guess where a shuffled one lies.
void gather_rows(const std::byte* base, std::uint64_t row_bytes, std::uint64_t stride_bytes,
                 std::span<const std::int64_t> rows, std::byte* out);

}  // namespace tenfold

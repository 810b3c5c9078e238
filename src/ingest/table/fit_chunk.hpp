#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <tenfold/schema.hpp>

#include "ingest/row_fault.hpp"
#include "ingest/table/column_builder.hpp"

namespace tenfold {

/// True if the values of a column like `from` can be stored unchanged in one like `to`. Ignores
/// `nullable` and `unit`.
bool has_same_storage(const Column& from, const Column& to);

/// Index of the first element that `to` cannot hold; `count` if there is none. `to` cannot hold an
/// integer out of range, a fraction or NaN in an integer dtype, or a number out of the range of a
/// float dtype: also an infinity, a negative number or 0 if it has none. Rounding to a float is
/// accepted, and so are 0 and 1 for bool.
std::int64_t first_not_fitting(DType from, const std::byte* elements, DType to, std::int64_t count);

/// Converts the rows of `chunk` from the source's column `from` to the requested column `to`. A row
/// that does not fit gets an entry in `bad`, and the elements of a missing value; the caller must
/// remove it.
ColumnBuilder fit_chunk(const Column& from, const ColumnChunk& chunk, const Column& to,
                        std::vector<BadValue>& bad);

/// The rows of `chunk` without those of `dropped`, which are ascending.
ColumnBuilder without_rows(const Column& column, const ColumnChunk& chunk,
                           std::span<const std::int64_t> dropped);

}  // namespace tenfold

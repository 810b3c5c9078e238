#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <tenfold/schema.hpp>

#include "ingest/row_fault.hpp"
#include "ingest/table/column_builder.hpp"

namespace tenfold {

/// True if the values of a column like `from` can be stored unchanged in a column like `to`.
/// Ignores `nullable` and `unit`.
bool has_same_storage(const Column& from, const Column& to);

/// Index of the first element that dtype `to` cannot hold; `count` if there is none. Without a
/// conversion (can_cast()), `to` can hold no element. An integer dtype cannot hold integers out of
/// its range, fractions, infinity and NaN. A float dtype cannot hold numbers out of its range, and
/// infinity, negative numbers or 0 if it has no representation for them. Bool can hold 0 and 1.
/// Rounding to a float dtype is accepted.
std::int64_t first_not_fitting(DType from, const std::byte* elements, DType to, std::int64_t count);

/// Converts the rows of `chunk` from the source's column `from` to the requested column `to`. A row
/// that does not fit gets an entry in `bad`, and the elements of a missing value; the caller must
/// remove it.
ColumnBuilder fit_chunk(const Column& from, const ColumnChunk& chunk, const Column& to,
                        std::vector<BadValue>& bad);

/// Copies `chunk` without the rows `dropped`, which are indices in ascending order.
ColumnBuilder without_rows(const Column& column, const ColumnChunk& chunk,
                           std::span<const std::int64_t> dropped);

}  // namespace tenfold

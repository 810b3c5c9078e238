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

/// Converts the rows of `chunk` from the source's column `from` to the requested column `to`. A row
/// that does not fit gets an entry in `bad`, and the elements of a missing value; the caller must
/// remove it.
ColumnBuilder fit_chunk(const Column& from, const ColumnChunk& chunk, const Column& to,
                        std::vector<BadValue>& bad);

/// Copies `chunk` without the rows `dropped`, which are indices in ascending order.
ColumnBuilder without_rows(const Column& column, const ColumnChunk& chunk,
                           std::span<const std::int64_t> dropped);

}  // namespace tenfold

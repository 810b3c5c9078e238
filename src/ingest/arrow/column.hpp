#pragma once

#include <cstdint>
#include <vector>

#include "ingest/arrow/array.hpp"
#include "ingest/arrow/plan.hpp"
#include "ingest/table/fit_chunk.hpp"
#include "ingest/table/table_writer.hpp"

namespace tenfold {

/// The rows of one column of a batch. If a buffer of Arrow has the layout of the column's values,
/// and no nulls, they are not copied, except those of ragged strings and of nested columns
/// (ArrowColumn::is_nested).
struct ArrowRows {
  ColumnChunk chunk;  ///< points into `owned` or into Arrow's buffers
  ColumnBuilder owned;
  std::vector<BadValue> bad;
  /// ArrowColumn::is_nested: indices of the numbers that are NaN because they were null.
  std::vector<std::int64_t> null_items;
};

/// Converts a column of `batch`, which must have passed check_arrow_array(). Bad rows have no value
/// in the chunk.
ArrowRows read_arrow_column(const ArrowColumn& column, const ArrowSlice& batch);

}  // namespace tenfold

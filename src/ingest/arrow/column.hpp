#pragma once

#include <cstdint>
#include <vector>

#include "ingest/arrow/array.hpp"
#include "ingest/arrow/plan.hpp"
#include "ingest/table/fit_chunk.hpp"
#include "ingest/table/table_writer.hpp"

namespace tenfold {

/// The rows of one column of a batch. If the column has no nulls and is not dictionary-encoded,
/// values of these types are not copied:
///
/// - numbers (but not booleans) of the column's dtype
/// - fixed-size lists of such numbers
/// - lists (but not list views) of such numbers or of such fixed-size lists
/// - strings and bytes with offsets
///
/// All other values are copied, and so are all values of nested columns (ArrowColumn::is_nested).
struct ArrowRows {
  ColumnChunk chunk;  ///< points into `owned` or into Arrow's buffers
  ColumnBuilder owned;
  std::vector<BadValue> bad;
  /// If ArrowColumn::is_nested: indices of the numbers that are NaN because they were null.
  std::vector<std::int64_t> null_items;
};

/// Converts a column of `batch`, which must have passed check_arrow_array(). The rows in `bad` are
/// null in the chunk.
ArrowRows read_arrow_column(const ArrowColumn& column, const ArrowSlice& batch);

}  // namespace tenfold

#pragma once

#include <cstdint>
#include <vector>

#include "ingest/arrow/array.hpp"
#include "ingest/arrow/plan.hpp"
#include "ingest/table/fit_chunk.hpp"
#include "ingest/table/table_writer.hpp"

namespace tenfold {

/// The rows of one column of a batch. Values are not copied if Arrow's buffer has their layout in
/// the data set and there are no nulls. Values of ragged strings and of nested columns
/// (ArrowColumn::is_nested) are always copied.
struct ArrowRows {
  ColumnChunk chunk;  ///< points into `owned` or into Arrow's buffers
  ColumnBuilder owned;
  std::vector<BadValue> bad;
  /// If ArrowColumn::is_nested: indices of the numbers that are NaN because they were null.
  std::vector<std::int64_t> null_items;
};

/// Converts a column of `batch`, which must have passed check_arrow_array(). Bad rows have no value
/// in the chunk.
ArrowRows read_arrow_column(const ArrowColumn& column, const ArrowSlice& batch);

}  // namespace tenfold

#pragma once

#include <vector>

#include "ingest/arrow/array.hpp"
#include "ingest/arrow/plan.hpp"
#include "ingest/table/fit_chunk.hpp"
#include "ingest/table/table_writer.hpp"

namespace tenfold {

/// The rows of one column of a batch. Buffers that Arrow stores in the layout of a column are not
/// copied.
struct ArrowRows {
  ColumnChunk chunk;  ///< points into `owned` and into Arrow's buffers
  ColumnBuilder owned;
  std::vector<BadValue> bad;
};

/// Converts a column of `batch`, which must have passed check_arrow_array(). Bad rows have no value
/// in the chunk.
ArrowRows read_arrow_column(const ArrowColumn& column, const ArrowSlice& batch);

}  // namespace tenfold

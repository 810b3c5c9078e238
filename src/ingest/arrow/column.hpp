#pragma once

#include <vector>

#include "ingest/arrow/array.hpp"
#include "ingest/arrow/plan.hpp"
#include "ingest/table/fit_chunk.hpp"
#include "ingest/table/table_writer.hpp"

namespace tenfold {

/// The rows of one column of a batch. What lies in Arrow's buffers as it is to be stored is not
/// copied.
struct ArrowRows {
  ColumnChunk chunk;  ///< of `owned`, and of Arrow's buffers
  OwnedChunk owned;
  std::vector<BadValue> bad;
};

/// `batch` has passed check_arrow_array(). Rows that are bad hold no value in the chunk.
ArrowRows read_arrow_column(const ArrowColumn& column, const ArrowSlice& batch);

}  // namespace tenfold

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tenfold/schema.hpp>

#include "ingest/arrow_array.hpp"
#include "ingest/fit_chunk.hpp"
#include "ingest/table_writer.hpp"

namespace tenfold {

/// What becomes of a field of a record batch, or of a field of a struct in it.
///
///   Arrow                                    column
///   numbers, booleans                        numbers
///   dates, times, timestamps, durations      int64 with a unit
///   text, decimals                           string
///   binary of any width                      bytes
///   dictionary                               what its values become
///   null                                     float64, nullable
///   fixed_size_list of numbers               rows of that shape, in each other too
///   list of numbers or of such lists         ragged
///   list of text, binary, decimals           ragged text
///   any other list, map                      string: JSON
///   struct                                   a nested record
struct ArrowColumn {
  Column column;
  std::vector<std::size_t> fields;  ///< from the batch down to it
  bool is_json = false;
};

/// The columns of a record batch of that type, in order; none is nullable but those that are null.
/// Throws Error(unsupported) if the batch is no struct.
std::vector<ArrowColumn> arrow_columns(const ArrowType& batch, const std::string& where);

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

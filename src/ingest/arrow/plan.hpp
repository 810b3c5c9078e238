#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <tenfold/schema.hpp>

#include "ingest/arrow/array.hpp"

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
///   list of lists of numbers                 ragged, as long as the inner lists are of one shape
///   any other list, map                      string: JSON
///   struct                                   a nested record
struct ArrowColumn {
  Column column;
  std::vector<std::size_t> fields;  ///< from the batch down to it
  bool is_json = false;
  /// Lists of lists of numbers: settle_shape() says of what shape they are.
  bool is_nested = false;
  bool has_shape = false;  ///< nested: the shape of a list is known, as some row has one
};

/// The columns of a record batch of that type, in order; none is nullable but those that are null.
/// Throws Error(unsupported) if the batch is no struct.
std::vector<ArrowColumn> arrow_columns(const ArrowType& batch, const std::string& where);

/// Looks at the lists of a nested column: the column gets the shape of those inside them, or, if
/// they have none or another than those before, becomes one of JSON. True if it is another column
/// now.
bool settle_shape(ArrowColumn& column, const ArrowSlice& batch);

}  // namespace tenfold

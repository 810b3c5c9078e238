#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <tenfold/schema.hpp>

#include "ingest/arrow/array.hpp"

namespace tenfold {

/// The column for a field of a record batch, or for a field of a struct in it.
///
///   Arrow                                    column
///   numbers, booleans                        numbers
///   dates, times, timestamps, durations      int64 with a unit
///   intervals of months                      int64 with a unit
///   text, decimals                           string
///   binary of any width                      bytes
///   dictionary of numbers, text, binary ...  as its values
///   null                                     float64, nullable
///   fixed_size_list of numbers (nested, too) rows of that shape
///   list of numbers or of such lists         ragged
///   list of text, binary, decimals           ragged strings or bytes
///   list of lists of numbers                 ragged, as long as the inner lists are of one shape
///   any other list or dictionary, map        string: JSON
///   struct                                   a nested record
struct ArrowColumn {
  Column column;
  std::vector<std::size_t> fields;  ///< indices from the batch down to the field
  bool is_json = false;
  /// A list of lists of numbers; settle_shape() determines the inner shape.
  bool is_nested = false;
  bool has_shape = false;  ///< is_nested: the inner shape is known, from a row that contains a list
                           ///< or from a requested schema
  std::size_t depth = 0;   ///< is_nested: number of dimensions of the inner shape
  bool is_shape_given = false;  ///< is_nested: the inner shape is that of a requested schema
};

/// The columns of a record batch of that type, in order. Only null columns are nullable at first.
/// Throws Error(unsupported) if the batch is not a struct, or a struct that becomes JSON has two
/// fields of one name.
std::vector<ArrowColumn> arrow_columns(const ArrowType& batch, const std::string& where);

/// Sets the inner shape of a nested column to that of the rows of `target`, if that is a column of
/// numbers with the same number of dimensions. Rows with another inner shape are bad rows.
void take_shape(ArrowColumn& column, const Column& target);

/// Compares the lengths of lists, and of the lists in them, with `shape[depth...]`, and sets
/// lengths that are still -1. Returns false if they differ, are 0, or a list is null.
bool have_shape(const ArrowSlice& lists, std::size_t depth, Shape& shape);

/// Determines the inner shape of a nested column from its lists, unless it was given. The column
/// becomes JSON if the inner lists have no common shape, or another one than in earlier batches, or
/// one is null or empty. Returns true if the column changed.
bool settle_shape(ArrowColumn& column, const ArrowSlice& batch);

}  // namespace tenfold

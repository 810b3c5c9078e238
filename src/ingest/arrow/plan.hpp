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
///   list of numbers or of fixed_size_lists   ragged
///   list of text, binary, decimals           ragged strings or bytes
///   list of lists of numbers                 ragged, if all inner lists have the same shape
///   any other list or dictionary, map        string: JSON
///   struct                                   a nested record
struct ArrowColumn {
  Column column;
  std::vector<std::size_t> fields;  ///< the index of the field in each struct, from the batch down
  bool is_json = false;
  /// A list of lists of numbers; settle_shape() determines the inner shape.
  bool is_nested = false;
  bool has_shape = false;  ///< is_nested: the inner shape is known, from a row that contains a list
                           ///< or from a requested schema
  std::size_t depth = 0;   ///< is_nested: number of dimensions of the inner shape
  bool is_shape_given = false;  ///< is_nested: the inner shape is that of a requested schema
};

/// The columns of a record batch of type `batch`, in the order of its fields. Only columns of
/// Arrow's type null are nullable. Throws Error(unsupported) if `batch` is not a struct, or if a
/// struct that becomes JSON has two fields with the same name.
std::vector<ArrowColumn> arrow_columns(const ArrowType& batch, const std::string& where);

/// Adapts a column to `target`, the column of a requested schema. Lists of numbers become JSON if
/// `target` is a string column, because nulls in lists of numbers would be NaN or bad rows. A
/// nested column gets its inner shape from `target` if `target` is a column of numbers with
/// `column.depth` inner dimensions: all dimensions of a ragged column, all but the first one of
/// another column. Rows with another inner shape are then bad rows.
void adapt_to(ArrowColumn& column, const Column& target);

/// Compares the lengths of lists, and of the lists nested in them, with the dimensions of `shape`
/// from `depth` on. Sets dimensions that are still -1. Returns false if a length differs or is 0,
/// or if a list is null.
bool have_shape(const ArrowSlice& lists, std::size_t depth, Shape& shape);

/// Determines the inner shape of a nested column from its lists, unless a requested schema gave the
/// shape. The column becomes JSON if an inner list is null or empty, or if the inner lists of all
/// batches so far do not have the same shape. Returns true if the column changed.
bool settle_shape(ArrowColumn& column, const ArrowSlice& batch);

}  // namespace tenfold

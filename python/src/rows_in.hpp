#pragma once

#include <optional>

#include "common.hpp"

namespace tenfold::python {

/// Converts rows to store from a list of (column, values, offsets, valid):
///
///   column   index in the schema
///   values   numbers: an array [rows, *shape], for a ragged column [total, *shape];
///            strings: a list of str or bytes, None for null; ragged strings: a list of such lists
///   offsets  for a ragged column of numbers, an int64 array [rows + 1]; else None
///   valid    a bool array [rows]; None: determined by the values
///
/// Raises TypeError for an item of a text column that is neither None nor of its type.
Batch batch_from(const Schema& schema, std::int64_t num_rows, nb::handle columns);

/// The same from a dict with one torch tensor [rows, *shape] of the right dtype for every column of
/// `schema`; empty for any other dict, and for columns in records or of several tensors.
std::optional<Batch> plain_batch_from(const Schema& schema, nb::handle rows);

}  // namespace tenfold::python

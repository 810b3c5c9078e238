#pragma once

#include <optional>

#include "common.hpp"

namespace tenfold::python {

/// Rows to be stored, of a list of (column, values, offsets, valid):
///
///   column   its place in the schema
///   values   numbers: an array [rows, *shape], of a ragged column [total, *shape];
///            text: a list of str or bytes, None for none; ragged text: a list of such lists
///   offsets  of a ragged column of numbers: an int64 array [rows + 1]; else None
///   valid    a bool array [rows]; None: as the values say
///
/// Raises TypeError for text of another type.
Batch batch_from(const Schema& schema, std::int64_t num_rows, nb::handle columns);

/// The same of a dict with one torch tensor [rows, *shape] of its dtype for every column of
/// `schema`; nothing for any other dict, and for columns that are more than one tensor.
std::optional<Batch> plain_batch_from(const Schema& schema, nb::handle rows);

}  // namespace tenfold::python

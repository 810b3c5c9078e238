#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common.hpp"

namespace tenfold::python {

/// Converts mappings, one for each row, to a batch with the columns of `schema`. Casts numbers as
/// keeps_kind() allows. Throws Error(invalid_argument) for a row that does not fit. The
/// message names the row by `unit` and its number, counted from `begin`: "row 7". `some`: the rows
/// may lack columns, but all must have the same ones; the batch has only these columns. `exact`:
/// see RowColumn::require_exact().
Batch batch_of_rows(const Schema& schema, nb::list rows, const std::string& unit,
                    std::int64_t begin, bool some = false, bool exact = false);

/// Converts a list of numbers to a tensor [n]. Casts numbers as keeps_kind() allows: not float to
/// integer, for example. For dtype bool, the numbers 0 and 1 are also allowed. Throws BadValue for
/// an element that the dtype cannot hold; BadValue::row is the index of the element.
Tensor numbers_from(DType dtype, nb::list values);

/// Converts rows to a batch: a list of mappings as batch_of_rows() does, or a tuple with
/// (index in the schema, values, offsets, valid) for each column:
///
///   values   a list with the value of each row, None for null; numbers also as an array
///            [rows, *shape] or, if there are `offsets`, [total, *shape]
///   offsets  end offsets [rows + 1] of a ragged column of numbers, starting with 0; otherwise None
///   valid    bools [rows]; None: a row is null if its value is None
///
/// `some`: columns may be missing, as for batch_of_rows().
Batch batch_from(const Schema& schema, std::int64_t num_rows, nb::handle rows,
                 std::int64_t first_row, bool some);

/// Converts a dict with one torch tensor [rows, *shape] of the right dtype for every column of
/// `schema`. Empty for any other dict, for columns in records, for nullable columns, and for
/// columns with end offsets.
std::optional<Batch> plain_batch_from(const Schema& schema, nb::handle rows);

}  // namespace tenfold::python

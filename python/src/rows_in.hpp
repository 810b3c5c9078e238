#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common.hpp"

namespace tenfold::python {

/// Converts row mappings to a batch of the columns of `schema`. Casts numbers as RowTable does for
/// take_rows(). Throws Error(invalid_argument) for a row that does not fit; the message names it by
/// `unit` and its number, counted from `begin`: "row 7".
Batch batch_of_rows(const Schema& schema, nb::list rows, const std::string& unit = "row ",
                    std::int64_t begin = 0);

/// The same from a list, or from a tuple of columns (index in the schema, values, offsets, valid):
///
///   values   a list with the value of each row, None for null; numbers also as an array
///            [rows, *shape], or with `offsets` [total, *shape]
///   offsets  end offsets [rows + 1] of a ragged column of numbers, from 0; else None
///   valid    bools [rows]; None: determined by the values
Batch batch_from(const Schema& schema, std::int64_t num_rows, nb::handle rows,
                 std::int64_t first_row = 0);

/// The rows of a dict with one torch tensor [rows, *shape] of the right dtype for every column of
/// `schema`; empty for any other dict, and for columns in records or of several tensors.
std::optional<Batch> plain_batch_from(const Schema& schema, nb::handle rows);

}  // namespace tenfold::python

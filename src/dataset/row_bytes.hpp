#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tenfold/batch.hpp>
#include <tenfold/schema.hpp>
#include <tenfold/tensor.hpp>

#include "base/fail.hpp"

namespace tenfold {

/// The role of a leaf in its column.
struct LeafRole {
  enum class Part : std::uint8_t { values, ends, item_ends, valid };
  std::size_t column = 0;  ///< index in the schema
  Part part = Part::values;
  KeyPath key;
  bool is_unbatched = false;
  std::uint64_t row_bytes = 0;
};

/// The leaves of the first column, then those of the second, and so on.
std::vector<LeafRole> leaf_roles(const Schema& schema);

/// Throws Error(invalid_argument), naming column and `where`, unless `rows` has the columns of
/// `schema` (if `some`, a subset of them) and no others, with values that can be stored unchanged.
/// Checks dtypes, shapes, numbers of rows, that offsets are nondecreasing and within their values,
/// and that strings are UTF-8. Padded rows cannot be stored.
void check_rows(const Schema& schema, const Batch& rows, const base::Where& where,
                bool some = false);

/// Returns a view of the rows [begin, end). All columns of `rows` must have fixed-size rows.
Batch rows_between(const Batch& rows, std::int64_t begin, std::int64_t end);

/// The column of `rows` with the name of `column`, or null.
const BatchColumn* find_column(const Batch& rows, const Column& column);

/// Fills `elements` with the missing value of fixed-size rows: NaN if is_floating_point(dtype),
/// otherwise zeros.
void fill_null(DType dtype, std::byte* elements, std::int64_t count);

/// The contiguous values to store for a column of fixed-size rows: `found.values`, with NaN in rows
/// that are missing according to `found.valid`, because readers recognise missing floating-point
/// rows by NaN. Other dtypes are not changed.
Tensor values_of(const Column& column, const BatchColumn& found, std::int64_t num_rows);

/// Validity of the rows of a nullable column, bool [num_rows]: `found.valid` if it is bool.
/// Otherwise, a floating-point row of fixed size is missing if it has elements and all of them are
/// NaN, and every other row is valid.
Tensor valid_of(const Column& column, const BatchColumn& found, std::int64_t num_rows);

/// A contiguous tensor for each leaf, with the data of `rows`. `rows` must have all columns and
/// have passed check_rows(). `lengths`: the number of elements that each leaf already has, from
/// which end offsets continue.
std::vector<Tensor> leaf_tensors(const std::vector<LeafRole>& roles, const Schema& schema,
                                 const Batch& rows, const std::vector<std::int64_t>& lengths);

}  // namespace tenfold

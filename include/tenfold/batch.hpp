#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <tenfold/schema.hpp>
#include <tenfold/tensor.hpp>

namespace tenfold {

/// The values of one column in a batch of B rows.
struct BatchColumn {
  Column column;  ///< the description of the column
  /// Fixed rows: [B, *shape]. Padded: [B, longest, *shape]. Ragged: the elements of all rows,
  /// concatenated, [total, *shape]; for strings and bytes, uint8 [total].
  Tensor values;
  /// Strings, bytes, and ragged rows that are not padded: int64 [B + 1]. Row i is values
  /// [offsets[i], offsets[i + 1]). For lists of strings, offsets count items.
  Tensor offsets;
  Tensor item_offsets;  ///< lists of strings only: int64 [items + 1], offsets of items in bytes
  Tensor lengths;       ///< padded rows only: int64 [B], the row lengths in elements
  /// Nullable columns: bool [B], true where the row has a value. An empty float32 tensor for
  /// columns that are not nullable, and for nullable columns of floats that are not ragged: in
  /// their values, NaN marks a missing value.
  Tensor valid;
  bool is_padded = false;  ///< rows are padded to the longest
};

/// A batch: a copy of some rows of a data set, column by column.
///
///     tenfold::Batch batch = ds.rows(0, 256);
///     batch.at("price").span<float>();            // [256]
///     batch.text("name", 5);                      // the string of row 5
///
/// The memory of a batch is reused only after the last tensor over it is released.
class TENFOLD_API Batch {
 public:
  /// Creates a batch of columns with `num_rows` rows each.
  Batch(std::int64_t num_rows, std::vector<BatchColumn> columns)
      : num_rows_(num_rows), columns_(std::move(columns)) {}

  /// The number of rows.
  std::int64_t num_rows() const noexcept { return num_rows_; }
  /// All columns.
  const std::vector<BatchColumn>& columns() const& noexcept TENFOLD_LIFETIMEBOUND {
    return columns_;
  }
  /// Overload for temporaries, as in `for (auto& c : ds.rows(0, 5).columns())`: returns the columns
  /// by value.
  std::vector<BatchColumn> columns() && { return std::move(columns_); }
  /// The column of that (dotted) name. Throws Error(key_not_found).
  const BatchColumn& column(std::string_view name) const& TENFOLD_LIFETIMEBOUND;
  /// Overload for temporaries: returns the column by value.
  BatchColumn column(std::string_view name) && { return std::as_const(*this).column(name); }
  /// The values of the column of that name. Throws Error(key_not_found).
  const Tensor& at(std::string_view name) const& TENFOLD_LIFETIMEBOUND {
    return column(name).values;
  }
  /// Overload for temporaries: returns the tensor by value.
  Tensor at(std::string_view name) && { return std::as_const(*this).column(name).values; }
  /// The string or bytes of one row. Throws Error(key_not_found), and Error(invalid_argument) if
  /// the rows of the column are not single strings or bytes, or if `row` is out of range.
  std::string_view text(std::string_view name, std::int64_t row) const& TENFOLD_LIFETIMEBOUND;
  /// Overload for temporaries: returns a copy of the string.
  std::string text(std::string_view name, std::int64_t row) && {
    return std::string(std::as_const(*this).text(name, row));
  }

 private:
  std::int64_t num_rows_;
  std::vector<BatchColumn> columns_;
};

/// The value that fills padded rows.
using PadValue = std::variant<std::int64_t, double>;

}  // namespace tenfold

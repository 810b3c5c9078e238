#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ingest/number_text.hpp"
#include "ingest/table/column_builder.hpp"
#include "ingest/text/row_plan.hpp"

namespace tenfold {

/// Whether a column can hold a number or bool.
enum class Fit : std::uint8_t {
  fits,
  wrong_type,  ///< e.g. a number with a fraction in an integer column
  too_large,   ///< out of range of the dtype
  inexact,     ///< an integer that the float dtype does not represent exactly
};

/// Writes a number as an element of `dtype`. If `is_given`, the user chose the dtype: integers may
/// be rounded to floats, floats without a fraction are accepted as integers, and 0, 1, 0.0 and 1.0
/// as bools.
Fit put_number(const NumberText& number, DType dtype, bool is_given, std::byte* into);
/// Writes NaN or an infinity; only float dtypes hold them.
Fit put_special(double value, DType dtype, std::byte* into);
/// Writes a bool; in a column of numbers that takes bools, as 0 or 1.
Fit put_bool(bool value, const Target& target, std::byte* into);

/// A column whose values are converted from text.
class TextColumn {
 public:
  /// `num_rows`: number of finished rows of the chunk, without the current row. Both arguments must
  /// outlive this object.
  TextColumn(const Target& target, const std::int64_t& num_rows);

  const Target& target() const noexcept { return *target_; }
  DType dtype() const noexcept { return target_->column.dtype; }
  std::size_t item_bytes() const noexcept { return item_bytes_; }
  /// True if each row is one number of this dtype.
  bool is_float64() const noexcept { return plain_ == DType::float64; }
  bool is_int64() const noexcept { return plain_ == DType::int64; }

  /// Memory of the current row's value; fixed-size rows only.
  std::byte* row_value() { return rows_.row(); }
  /// The values of all rows of a ragged or string column. The caller appends the values of the
  /// current row.
  GrowingBytes& values() noexcept { return rows_.values; }
  /// Call before the value or null of a row: adds nulls for the rows since the last value.
  void begin_value() {
    if (rows_.num_rows != *num_rows_) [[unlikely]]
      rows_.add_nulls(*num_rows_ - rows_.num_rows);
  }
  /// Call after the value or null of a row.
  void end_value() {
    if (rows_.num_rows == *num_rows_) rows_.end_row();
  }
  /// Ends an item of a ragged string column.
  void end_item() { rows_.end_item(); }
  /// Sets the current row to null.
  void set_null() { rows_.add_nulls(1); }

  /// Removes the value of the current row.
  void undo_row() { rows_.truncate(std::min(rows_.num_rows, *num_rows_)); }
  void clear() { rows_.clear(); }

  /// Completes the chunk. No rows may be added until clear().
  ColumnChunk finish() {
    begin_value();
    rows_.finish();
    return rows_.view();
  }
  /// Size of all rows in bytes, including the nulls that finish() adds.
  std::size_t size_bytes() const noexcept {
    const std::int64_t num_missing = std::max<std::int64_t>(*num_rows_ - rows_.num_rows, 0);
    return rows_.size_bytes() + static_cast<std::size_t>(num_missing) * rows_.null_bytes();
  }

 private:
  const Target* target_;
  std::size_t item_bytes_;
  DType plain_ = DType::bool_;  ///< dtype if each row is one number of a known dtype; else bool_
  const std::int64_t* num_rows_;
  ColumnBuilder rows_;
};

/// The rows of a chunk. The values of a row may be added in any order of the columns; then the row
/// is ended or undone. Ending a row adds no nulls: a column gets the nulls of the rows without a
/// value when its next value is added, or in finish(). So ending a row takes constant time, even
/// with very many columns. Undoing a row takes time proportional to the number of all columns.
class RowBuilder {
 public:
  /// `plan` must outlive this object.
  explicit RowBuilder(const RowPlan& plan);
  RowBuilder(const RowBuilder&) = delete;
  RowBuilder& operator=(const RowBuilder&) = delete;

  TextColumn& column(std::size_t target) { return columns_[target]; }
  const TextColumn& column(std::size_t target) const { return columns_[target]; }
  void end_row() { ++num_rows_; }
  void undo_row();
  void clear();
  std::int64_t num_rows() const noexcept { return num_rows_; }
  /// Size of the rows in bytes. Takes time proportional to the number of columns.
  std::size_t size_bytes() const noexcept;
  /// Returns the rows, valid until clear().
  std::vector<ColumnChunk> finish();

 private:
  std::vector<TextColumn> columns_;
  std::int64_t num_rows_ = 0;
};

}  // namespace tenfold

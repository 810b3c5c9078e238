#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "ingest/number_text.hpp"
#include "ingest/table/table_writer.hpp"
#include "ingest/text/row_plan.hpp"

namespace tenfold {

/// Bytes that grow without being filled first.
class GrowingBytes {
 public:
  std::size_t size() const noexcept { return size_; }
  std::byte* data() const noexcept { return memory_.get(); }
  std::span<const std::byte> bytes() const noexcept { return {memory_.get(), size_}; }
  void truncate(std::size_t size) noexcept { size_ = size; }
  /// Room for `count` more bytes, which then belong to it.
  std::byte* extend(std::size_t count) {
    if (count > capacity_ - size_) grow(count);
    std::byte* const begin = memory_.get() + size_;
    size_ += count;
    return begin;
  }
  void append(std::string_view text) {
    if (!text.empty()) std::memcpy(extend(text.size()), text.data(), text.size());
  }

 private:
  void grow(std::size_t count);

  std::unique_ptr<std::byte[]> memory_;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

/// What a number or bool is to a column.
enum class Fit : std::uint8_t {
  fits,
  wrong_type,  ///< a number with a fraction for integers, ...
  too_large,   ///< beyond the range of the dtype
  inexact,     ///< an integer that the floats do not hold exactly
};

/// Writes a number as an element of `dtype`. `is_given`: the user chose the dtype, so integers may
/// be rounded to floats, and 1.0 is an integer and true.
Fit put_number(const NumberText& number, DType dtype, bool is_given, std::byte* into);
/// NaN and the infinities.
Fit put_special(double value, DType dtype, std::byte* into);
Fit put_bool(bool value, DType dtype, std::byte* into);

/// The values of one column in the rows of a chunk.
class ColumnBuilder {
 public:
  /// `num_rows`: of all columns, the one that is being filled not counted.
  ColumnBuilder(const Target& target, const std::size_t& num_rows);

  const Target& target() const noexcept { return *target_; }
  DType dtype() const noexcept { return target_->column.dtype; }
  std::size_t item_bytes() const noexcept { return item_bytes_; }
  std::size_t row_items() const noexcept { return row_items_; }

  std::size_t row_bytes() const noexcept { return row_bytes_; }
  bool has_ends() const noexcept { return has_ends_; }
  /// One number in each row, of these dtypes.
  bool is_float64() const noexcept { return plain_ == DType::float64; }
  bool is_int64() const noexcept { return plain_ == DType::int64; }

  /// Makes room for `count` more rows; of columns of fixed rows, before they are filled.
  void reserve_rows(std::size_t count) { values_.extend(count * row_bytes_); }
  /// The memory of this row's value; of columns of fixed rows.
  std::byte* row_value() { return values_.data() + *num_rows_ * row_bytes_; }
  /// What follows in this row; of columns with ends.
  GrowingBytes& values() noexcept { return values_; }
  /// Before the value of the row, or its null: the rows since the last value get nulls.
  void begin_value() {
    if (num_filled_ != *num_rows_) [[unlikely]]
      fill_absent();
    ++num_filled_;
  }
  void end_value() {
    if (has_ends_) end_row();
  }
  /// Ends an item of ragged text.
  void end_item() { item_ends_.push_back(static_cast<std::int64_t>(values_.size())); }
  /// The row has no value.
  void set_null();

  /// Takes back what was put into the row.
  void undo_row();
  void clear();

  /// No more rows until clear().
  void finish();
  /// After finish(): some row has no value.
  bool has_nulls() const noexcept { return has_nulls_; }
  ColumnChunk chunk() const;
  std::size_t size_bytes() const noexcept;

 private:
  void end_row();
  void fill_absent();

  const Target* target_;
  bool has_ends_;
  std::size_t item_bytes_;
  std::size_t row_items_ = 0;  ///< of fixed rows
  std::size_t row_bytes_ = 0;
  std::size_t unit_bytes_ = 1;  ///< that one step of an end counts
  DType plain_ = DType::bool_;  ///< that of a typed column of scalars
  const std::size_t* num_rows_;
  std::size_t num_filled_ = 0;  ///< rows with a value or a null
  GrowingBytes values_;
  std::vector<std::int64_t> ends_;
  std::vector<std::int64_t> item_ends_;
  std::vector<std::uint8_t> valid_;
  bool has_nulls_ = false;
};

/// The rows of a chunk, one builder a column. A row is begun, filled in any order, and ended or
/// taken back. A row costs time for the columns that it has a value of: in the others it has a
/// null, which is added when such a column gets its next value, or by finish().
class RowBuilder {
 public:
  explicit RowBuilder(const RowPlan& plan);
  RowBuilder(const RowBuilder&) = delete;
  RowBuilder& operator=(const RowBuilder&) = delete;

  ColumnBuilder& column(std::size_t target) { return columns_[target]; }
  const ColumnBuilder& column(std::size_t target) const { return columns_[target]; }
  std::size_t num_columns() const noexcept { return columns_.size(); }
  void begin_row() {
    if (num_rows_ == num_reserved_) reserve_rows();
  }
  void end_row() { ++num_rows_; }
  void undo_row();
  void clear();
  std::int64_t num_rows() const noexcept { return static_cast<std::int64_t>(num_rows_); }
  /// That the rows take; looked at now and then.
  std::size_t size_bytes() const noexcept;
  /// The rows, until clear().
  std::vector<ColumnChunk> finish();

 private:
  void reserve_rows();

  std::vector<ColumnBuilder> columns_;
  std::size_t num_rows_ = 0;
  std::size_t num_reserved_ = 0;
  std::size_t rows_at_once_ = 1;  ///< that room is made for
};

}  // namespace tenfold

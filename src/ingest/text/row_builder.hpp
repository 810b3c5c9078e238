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

/// A growing byte buffer that is not zeroed.
class GrowingBytes {
 public:
  std::size_t size() const noexcept { return size_; }
  std::byte* data() const noexcept { return memory_.get(); }
  std::span<const std::byte> bytes() const noexcept { return {memory_.get(), size_}; }
  void truncate(std::size_t size) noexcept { size_ = size; }
  /// Appends `count` uninitialised bytes and returns them.
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

/// Whether a column can hold a number or bool.
enum class Fit : std::uint8_t {
  fits,
  wrong_type,  ///< e.g. a number with a fraction in an integer column
  too_large,   ///< out of range of the dtype
  inexact,     ///< an integer that the float dtype does not represent exactly
};

/// Writes a number as an element of `dtype`. `is_given`: the user chose the dtype, so integers may
/// be rounded to floats, and 1.0 is accepted as an integer and as true.
Fit put_number(const NumberText& number, DType dtype, bool is_given, std::byte* into);
/// Writes NaN or an infinity.
Fit put_special(double value, DType dtype, std::byte* into);
Fit put_bool(bool value, DType dtype, std::byte* into);

/// The values of one column in the rows of a chunk.
class ColumnBuilder {
 public:
  /// `num_rows`: finished rows of all columns, without the current row.
  ColumnBuilder(const Target& target, const std::size_t& num_rows);

  const Target& target() const noexcept { return *target_; }
  DType dtype() const noexcept { return target_->column.dtype; }
  std::size_t item_bytes() const noexcept { return item_bytes_; }
  std::size_t row_items() const noexcept { return row_items_; }

  std::size_t row_bytes() const noexcept { return row_bytes_; }
  bool has_ends() const noexcept { return has_ends_; }
  /// True if each row is one number of this dtype.
  bool is_float64() const noexcept { return plain_ == DType::float64; }
  bool is_int64() const noexcept { return plain_ == DType::int64; }

  /// Reserves space for `count` more rows; for fixed-size rows, before they are filled.
  void reserve_rows(std::size_t count) { values_.extend(count * row_bytes_); }
  /// Memory of the current row's value; fixed-size rows only.
  std::byte* row_value() { return values_.data() + *num_rows_ * row_bytes_; }
  /// Values appended to the current row; ragged columns only.
  GrowingBytes& values() noexcept { return values_; }
  /// Call before the value or null of a row: adds nulls for the rows since the last value.
  void begin_value() {
    if (num_filled_ != *num_rows_) [[unlikely]]
      fill_absent();
    ++num_filled_;
  }
  void end_value() {
    if (has_ends_) end_row();
  }
  /// Ends an item of a ragged string column.
  void end_item() { item_ends_.push_back(static_cast<std::int64_t>(values_.size())); }
  /// Sets the current row to null.
  void set_null();

  /// Removes the value of the current row.
  void undo_row();
  void clear();

  /// Completes the chunk. No rows may be added until clear().
  void finish();
  /// After finish(): true if some row has no value.
  bool has_nulls() const noexcept { return has_nulls_; }
  ColumnChunk chunk() const;
  std::size_t size_bytes() const noexcept;

 private:
  void end_row();
  void fill_absent();

  const Target* target_;
  bool has_ends_;
  std::size_t item_bytes_;
  std::size_t row_items_ = 0;  ///< elements per fixed-size row
  std::size_t row_bytes_ = 0;
  std::size_t unit_bytes_ = 1;  ///< bytes per unit of the end offsets
  DType plain_ = DType::bool_;  ///< dtype of a typed scalar column
  const std::size_t* num_rows_;
  std::size_t num_filled_ = 0;  ///< number of rows with a value or a null
  GrowingBytes values_;
  std::vector<std::int64_t> ends_;
  std::vector<std::int64_t> item_ends_;
  std::vector<std::uint8_t> valid_;
  bool has_nulls_ = false;
};

/// The rows of a chunk, with one builder per column. A row is started, filled in any order, and
/// ended or undone. A row costs time for the columns in which it has a value. Other columns have a
/// null, which is added when the column gets its next value, or by finish().
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
  /// Size of the rows; checked from time to time.
  std::size_t size_bytes() const noexcept;
  /// Returns the rows, valid until clear().
  std::vector<ColumnChunk> finish();

 private:
  void reserve_rows();

  std::vector<ColumnBuilder> columns_;
  std::size_t num_rows_ = 0;
  std::size_t num_reserved_ = 0;
  std::size_t rows_at_once_ = 1;  ///< number of rows reserved at a time
};

}  // namespace tenfold

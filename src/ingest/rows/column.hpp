#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/schema.hpp>

#include "ingest/row_type.hpp"
#include "ingest/table/column_builder.hpp"
#include "ingest/table/convert_chunk.hpp"

namespace tenfold {

/// One column of a row-by-row source: the rows of the current block, and the type of all rows so
/// far.
///
/// The functions that add a value return false if the column cannot hold the value without
/// promotion. If with() returns a type, call promote() with it, then add the value again. Before
/// they return false, add() and add_rows() may have added a part of an array, which truncate()
/// removes. To add a list, add its elements, then call end_list(); truncate() removes an unfinished
/// list.
class RowColumn {
 public:
  /// A column that is null in the `rows_before` rows of earlier blocks. `defers_nulls`: accept
  /// lists with nulls even if their current type cannot represent nulls, because later rows may
  /// promote the type to float. At the end, first_null_not_fitting() returns the first row whose
  /// nulls do not fit. `keeps_kinds`: values of other types are never converted to strings.
  RowColumn(KeyPath path, std::int64_t rows_before, bool defers_nulls = true,
            bool keeps_kinds = false);
  /// A column of a schema given by the user: its type never changes. `keeps_kinds`: a column of
  /// strings accepts only strings, and a column of numbers only dtypes that keeps_kind() allows.
  explicit RowColumn(Column wanted, bool keeps_kinds = false);

  /// If fixed by a schema, and of scalars: from now on, refuses bools unless the column has bools,
  /// and integers that float64 would round.
  void require_exact() noexcept { requires_exact_ = true; }
  bool requires_exact() const noexcept { return requires_exact_; }

  const KeyPath& path() const noexcept { return path_; }
  const RowType& type() const noexcept { return type_; }
  /// The name of the first type with elements; empty if there was none.
  const std::string& first_type() const noexcept { return first_type_; }
  bool is_fixed_by_schema() const noexcept { return is_locked_; }
  /// The type for messages, such as "int64 (us)": if fixed by a schema, the type in the schema.
  std::string text() const { return is_locked_ ? described(wanted_) : type_.text(); }
  /// Rows in the current block.
  std::int64_t num_rows() const noexcept { return rows_.num_rows; }
  std::size_t num_bytes() const noexcept { return rows_.size_bytes(); }
  /// The size of a null row in the result of block(), if lists of one length are stored as rows of
  /// fixed size, else 0.
  std::int64_t padded_null_bytes() const noexcept {
    const bool is_padded =
        is_list() && type_.is_number() && !(is_locked_ ? wanted_.has_ends() : has_lengths_);
    return is_padded ? last_list_bytes_ : 0;
  }
  /// If fixed by a schema: the last real number since truncate() that the dtype cannot hold
  /// according to first_not_fitting() or require_exact(); empty if there was none.
  const std::string& out_of_range() const noexcept { return out_of_range_; }

  /// The type of the column after a value of type `value` is added; empty if there is no such type,
  /// or the column is fixed by a schema.
  std::optional<RowType> with(const RowType& value) const;
  void promote(const RowType& type);
  /// The first row whose list has a null that the current type cannot represent; -1: none.
  std::int64_t first_null_not_fitting() const noexcept {
    return type_.takes_nulls() ? -1 : first_null_row_;
  }

  // --- values ---

  /// Adds a value, as put() does for an element of a list.
  template <class T>
  bool add(const T& value) {
    return is_scalar() && put(value) && end_scalar();
  }
  bool add(std::nullptr_t);
  /// Adds a contiguous array: a number, or a list.
  bool add(const Tensor& array) {
    return add_array(array.dtype(), array.shape(), array.raw_data());
  }
  /// Adds a row for each index of the first dimension of a contiguous array.
  bool add_rows(const Tensor& array);
  bool add_json(std::string_view text);
  void add_nulls(std::int64_t count);
  /// If fixed by a schema: makes the last row valid even if it is NaN, unless its value is null.
  /// Does nothing for a column that is not nullable.
  void mark_valid();

  bool is_list() const noexcept { return type_.form == RowForm::list; }
  bool is_json() const noexcept { return type_.form == RowForm::json; }
  /// True if lists are stored as JSON strings.
  bool takes_json() const noexcept {
    return is_json() ||
           (is_locked_ && !keeps_kinds_ && is_scalar() && type_.kind == ColumnKind::string);
  }
  /// Sets the length with which the column compares the lengths of its lists, to decide whether all
  /// are equal. Does nothing if the length of an earlier list is known. Lists of other lengths are
  /// still accepted.
  void expect_length(std::int64_t length) noexcept {
    if (length_ < 0) length_ = length;
  }
  /// Closes the list of `length` elements that were added since the last row.
  bool end_list(std::int64_t length);

  // --- elements of lists ---

  bool put(std::nullptr_t);
  bool put(bool value);
  bool put(std::int64_t value) {
    if (type_.dtype == DType::int64 && type_.has_elements && type_.is_number() &&
        type_.unit.empty()) [[likely]] {
      type_.kinds |= kinds_of(value);
      append(value);
      note(Origins::Kind::same);
      return true;
    }
    return put_other_int(value);
  }
  bool put(std::uint64_t value);
  bool put(double value) {
    if (type_.dtype == DType::float64 && type_.has_elements) [[likely]] {
      type_.kinds |= scalar_kind::kFloat;
      append(value);
      note(Origins::Kind::same);
      return true;
    }
    return put_other_float(value);
  }
  bool put(const HugeInteger& integer);
  bool put(const RowText& text);
  /// A column with another unit or clock does not accept the time.
  bool put(const RowTime& time);
  /// Adds a 0-d array.
  bool put(const Tensor& number) {
    return number.ndim() == 0 && put_number(number.dtype(), number.raw_data());
  }
  /// Adds a contiguous array to the current list: an element or, if `depth` > 0, a part of an
  /// element, with the shape of an element from dimension `depth` on. All elements must have the
  /// same shape.
  bool put_array(const Tensor& array, std::size_t depth = 0);
  /// True if lists may contain nulls.
  bool takes_null_elements() const noexcept {
    if ((is_locked_ || !defers_nulls_) && (!type_.has_elements || !type_.takes_nulls())) {
      return false;
    }
    return !keeps_kinds_ || (is_locked_ ? wanted_.nullable : type_.is_number());
  }

  // --- blocks ---

  /// Removes the rows from `num_rows` on, and an unfinished list. Keeps the type.
  void truncate(std::int64_t num_rows);
  /// Remembers the type, for undo_row().
  void begin_row() noexcept { before_ = {type_.kinds, type_.clock, type_.has_null, is_nullable_}; }
  /// Like truncate(). Also removes what the values since begin_row() added to the type without a
  /// promotion, such as the kind "negative integer".
  void undo_row(std::int64_t num_rows);
  /// The column as stored. Unless it is fixed by a schema, lists of numbers become rows of fixed
  /// size if all lists so far have the same length, which is not 0.
  Column stored();
  /// The rows of the block in the layout of stored(); valid until the next value is added.
  ColumnChunk block();
  /// Starts a new block.
  void clear_block();
  /// If fixed by a schema: allocates memory for `num_rows` rows, if rows have a fixed size.
  void reserve(std::int64_t num_rows);
  /// If fixed by a schema: moves the rows out of the block. Copies them only if they are lists of
  /// equal length and some are null. Afterwards, the object may only be destroyed.
  BatchColumn take_rows();
  /// The types of all elements before promotion, in all blocks, for rows stored as `column`.
  const Origins& origins(const Column& column) const noexcept {
    return column.is_text() ? text_origins_ : origins_;
  }

 private:
  bool is_scalar() const noexcept { return type_.form == RowForm::scalar; }
  /// True if the column accepts plain numbers. A time column does so only if it is fixed by a
  /// schema: numbers are counts of its unit.
  bool takes_numbers() const noexcept {
    return type_.is_number() && type_.has_elements && (type_.unit.empty() || is_locked_);
  }
  template <class T>
  void append(T value) {
    std::memcpy(rows_.values.extend(sizeof(T)), &value, sizeof(T));
  }
  void note(Origins::Kind kind) {
    if (origins_.is_kept()) [[unlikely]] {
      origins_.push(kind);
    }
  }
  void note_other(Origins::Kind kind);
  bool end_scalar() {
    rows_.end_row();
    return true;
  }

  bool add_array(DType dtype, std::span<const std::int64_t> shape, const std::byte* elements);
  bool put_number(DType dtype, const std::byte* element);
  bool put_other_int(std::int64_t value);
  bool put_other_float(double value);
  bool put_elements(DType dtype, const std::byte* elements, std::int64_t count);
  bool put_cast(DType dtype, const std::byte* elements, std::int64_t count);
  void put_numbers(const std::byte* elements, std::int64_t count);
  std::int64_t elements_in_block() const;
  /// The number of elements in earlier blocks: all elements of lists or, for a column of scalars,
  /// one for each row. origins_ counts elements in the same way.
  std::int64_t elements_before() const noexcept {
    return is_list() ? list_elements_before_ : rows_before_;
  }
  /// Lists that contain only nulls are stored as float64.
  DType stored_dtype() const noexcept { return type_.has_elements ? type_.dtype : DType::float64; }
  bool put_digits(std::string_view text);
  void note_text(Origins::Kind kind);
  void promote_origins(const RowType& type);
  /// The column as stored. `length`: if not 0, lists of numbers become rows of fixed size with this
  /// length; all other lists become ragged rows.
  Column block_column(std::int64_t length = 0) const;
  ColumnBuilder& finished(const Column& column);
  ColumnBuilder& padded(const Column& column);
  void compare_lengths();

  /// The parts of the column's type that values change without a promotion.
  struct Marks {
    ScalarKinds kinds = 0;
    Clock clock = Clock::unknown;
    bool has_null = false;
    bool is_nullable = false;
  };

  KeyPath path_;
  RowType type_;
  /// The marks that undo_row() restores: those at begin_row(), or after a promotion in the row.
  Marks before_;
  std::string first_type_;
  Column wanted_;
  bool is_locked_ = false;
  bool keeps_kinds_ = false;
  bool requires_exact_ = false;
  std::string out_of_range_;
  bool is_nullable_ = false;

  ColumnBuilder rows_;                      ///< the rows of the block, with lists as ragged rows
  std::vector<std::int64_t> marked_valid_;  ///< rows with a mark_valid() call
  ColumnBuilder padded_;  ///< the result of block() for lists of one length and null rows

  std::int64_t length_ = -1;               ///< length of the last compared list; -1: none yet
  bool has_lengths_ = false;               ///< lists have different lengths
  std::int64_t last_list_bytes_ = 0;       ///< size of the elements of the last list of numbers
  std::int64_t rows_before_ = 0;           ///< rows in earlier blocks
  std::int64_t list_elements_before_ = 0;  ///< numbers or strings in lists of earlier blocks
  bool defers_nulls_ = true;
  std::int64_t first_null_row_ = -1;  ///< first row whose list contains a null
  Origins origins_;                   ///< origins of numbers
  Origins text_origins_;              ///< lists of strings: which items were not strings
};

}  // namespace tenfold

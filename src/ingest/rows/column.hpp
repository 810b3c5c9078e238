#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/schema.hpp>

#include "ingest/rows/type.hpp"
#include "ingest/table/convert_chunk.hpp"
#include "ingest/table/table_writer.hpp"

namespace tenfold {

/// One column of rows that come one by one: the block of rows that is being gathered, and what all
/// rows so far are.
///
/// The functions that add a value return false, and add nothing, if the column cannot hold it as it
/// is: promote() first. Lists are opened, filled and closed; a list that was not filled to its end
/// is undone by truncate().
class RowColumn {
 public:
  /// In the `rows_before` rows of earlier blocks it has no value. `defers_nulls`: lists with nulls
  /// are taken whatever their type is so far, as later rows may make it one of floats;
  /// first_misfit_null() says in the end whether they fit.
  RowColumn(KeyPath path, std::int64_t rows_before, bool defers_nulls = true);
  /// A column that somebody asked for: it never becomes another.
  explicit RowColumn(Column wanted);

  const KeyPath& path() const noexcept { return path_; }
  const RowType& type() const noexcept { return type_; }
  /// The text of the first type with elements that it was promoted to; empty: there was none.
  const std::string& first_type() const noexcept { return first_type_; }
  bool is_fixed_by_schema() const noexcept { return is_locked_; }
  /// Then: what they asked for.
  const Column& wanted() const noexcept { return wanted_; }
  /// The block's.
  std::int64_t num_rows() const noexcept { return num_rows_; }
  std::size_t num_bytes() const noexcept {
    return values_.size() + (ends_.size() + item_ends_.size()) * 8;
  }

  /// What the column would be with a value of that type too. Nothing if there is no such column.
  std::optional<RowType> with(const RowType& value) const;
  void promote(const RowType& type);
  /// The first row with a null in a list that the type so far has no value for; -1: none.
  std::int64_t first_misfit_null() const noexcept {
    return type_.takes_nulls() ? -1 : first_null_row_;
  }

  // --- values ---

  bool add_null();
  bool add_bool(bool value) { return is_scalar() && put_bool(value) && end_scalar(); }
  bool add_int(std::int64_t value) { return is_scalar() && put_int(value) && end_scalar(); }
  bool add_uint(std::uint64_t value) { return is_scalar() && put_uint(value) && end_scalar(); }
  bool add_float(double value) { return is_scalar() && put_float(value) && end_scalar(); }
  bool add_text(ColumnKind kind, std::string_view text) {
    return is_scalar() && put_text(kind, text) && end_scalar();
  }
  /// A moment or a span of time: a column of another unit or clock does not hold it.
  bool add_time(std::int64_t count, std::string_view unit, Clock clock) {
    return is_scalar() && put_time(count, unit, clock) && end_scalar();
  }
  /// An integer beyond 64 bits.
  bool add_huge(std::string_view digits) { return is_scalar() && put_huge(digits) && end_scalar(); }
  /// An array: its bytes in row-major order.
  bool add_array(DType dtype, std::span<const std::int64_t> shape, const std::byte* elements);
  /// A row for each index of the first dimension of an array.
  bool add_arrays(DType dtype, std::span<const std::int64_t> shape, const std::byte* elements);
  bool add_json(std::string_view text);
  void add_nulls(std::int64_t count);

  bool is_list() const noexcept { return type_.form == RowForm::list; }
  bool is_json() const noexcept { return type_.form == RowForm::json; }
  /// The length that lists are going to have, as long as there is none.
  void expect_length(std::int64_t length) noexcept {
    if (length_ < 0) length_ = length;
  }
  /// Closes the list whose elements were put since the last row.
  bool end_list();

  // --- elements of lists ---

  bool put_bool(bool value);
  bool put_int(std::int64_t value) {
    if (type_.dtype == DType::int64 && type_.has_elements && type_.is_number() &&
        type_.unit.empty()) [[likely]] {
      type_.kinds |= kinds_of(value);
      put(value);
      note(Origins::Kind::same);
      return true;
    }
    return put_other_int(value);
  }
  bool put_uint(std::uint64_t value);
  bool put_float(double value) {
    if (type_.dtype == DType::float64 && type_.has_elements) [[likely]] {
      type_.kinds |= scalar_kind::kFloat;
      put(value);
      note(Origins::Kind::same);
      return true;
    }
    return put_other_float(value);
  }
  bool put_huge(std::string_view digits);
  bool put_text(ColumnKind kind, std::string_view text);
  bool put_time(std::int64_t count, std::string_view unit, Clock clock);
  bool put_null();
  /// An array without dimensions.
  bool put_number(DType dtype, const std::byte* element);
  /// An array of the shape that every element has.
  bool put_array(DType dtype, std::span<const std::int64_t> shape, const std::byte* elements);

  // --- blocks ---

  /// Forgets the rows from `num_rows` on, and a list that is open.
  void truncate(std::int64_t num_rows);
  /// As the files will hold it: fixed rows if all lists so far are of one length.
  Column stored();
  /// The rows of the block as stored() says; valid until the next value.
  ColumnChunk block();
  /// Begins a new block.
  void clear_block();
  /// What the elements were before they were promoted, those of all blocks; of rows stored as
  /// `column` says.
  const Origins& origins(const Column& column) const noexcept {
    return column.is_text() ? text_origins_ : origins_;
  }

 private:
  bool is_scalar() const noexcept { return type_.form == RowForm::scalar; }
  /// Numbers that are none of a clock's; a schema's column takes them as counts of its unit.
  bool takes_numbers() const noexcept {
    return type_.is_number() && type_.has_elements && (type_.unit.empty() || is_locked_);
  }
  template <class T>
  void put(T value) {
    const std::size_t at = values_.size();
    values_.resize(at + sizeof(T));
    std::memcpy(values_.data() + at, &value, sizeof(T));
  }
  void note(Origins::Kind kind) {
    if (origins_.is_kept()) [[unlikely]] {
      origins_.push(kind);
    }
  }
  void note_other(Origins::Kind kind);
  bool end_scalar() {
    if (!type_.is_number()) ends_.push_back(static_cast<std::int64_t>(values_.size()));
    end_row();
    return true;
  }
  void end_row() {
    if (!valid_.empty()) valid_.push_back(1);
    ++num_rows_;
  }

  bool put_other_int(std::int64_t value);
  bool put_other_float(double value);
  bool put_cast(DType dtype, const std::byte* elements, std::int64_t count);
  void put_numbers(const std::byte* elements, std::int64_t count);
  void put_bytes(const void* bytes, std::size_t count);
  std::int64_t elements_in_block() const;
  /// As origins_ counts them.
  std::int64_t elements_before() const noexcept {
    return is_list() ? list_elements_before_ : rows_before_;
  }
  /// Lists of nulls alone are stored as floats.
  DType stored_dtype() const noexcept { return type_.has_elements ? type_.dtype : DType::float64; }
  bool put_digits(std::string_view text);
  void note_text(Origins::Kind kind);
  std::int64_t numbers_per_element() const {
    return type_.inner.empty() ? 1 : elements_per_row(type_.inner);
  }
  std::int64_t items_in_block() const;
  void promote_origins(const RowType& type);
  Column block_column() const;
  ColumnChunk gathered() const;
  ColumnChunk padded(const Column& column);
  void compare_lengths();

  KeyPath path_;
  RowType type_;
  std::string first_type_;
  Column wanted_;
  bool is_locked_ = false;
  bool is_nullable_ = false;

  std::int64_t num_rows_ = 0;
  std::vector<std::byte> values_;
  std::vector<std::int64_t> ends_;
  std::vector<std::int64_t> item_ends_;
  std::vector<std::uint8_t> valid_;
  std::vector<std::byte> padded_;  ///< block()'s, where lists of one length have nulls among them

  std::int64_t length_ = -1;               ///< of all lists so far; -1: there is none
  bool has_lengths_ = false;               ///< lists of several lengths
  std::int64_t rows_before_ = 0;           ///< in earlier blocks
  std::int64_t list_elements_before_ = 0;  ///< the numbers or texts in their lists
  bool defers_nulls_ = true;
  std::int64_t first_null_row_ = -1;  ///< the first row with a null in its list
  Origins origins_;                   ///< of numbers
  Origins text_origins_;              ///< of lists of text: which items were no strings
};

}  // namespace tenfold

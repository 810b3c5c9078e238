#include "ingest/rows/column.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string>
#include <utility>

#include "core/tensor/cast.hpp"
#include "core/tensor/promote.hpp"
#include "dataset/leaf_names.hpp"
#include "dataset/row_bytes.hpp"
#include "ingest/table/fit_chunk.hpp"

namespace tenfold {
namespace {

RowType type_of(const Column& wanted) {
  RowType type;
  const bool is_list = wanted.ragged || !wanted.shape.empty();
  type.form = is_list ? RowForm::list : RowForm::scalar;
  type.has_elements = true;
  type.kind = wanted.kind;
  type.dtype = wanted.dtype;
  type.unit = wanted.unit;
  if (wanted.ragged) type.inner = wanted.shape;
  if (!wanted.ragged && is_list) type.inner.assign(wanted.shape.begin() + 1, wanted.shape.end());
  return type;
}

/// False if the final type converts values that are not strings to strings.
bool keeps_values(const RowType& type) {
  const RowType final_type = settled(type);
  if (final_type.form == RowForm::json) return false;
  return final_type.kind != ColumnKind::string || (final_type.kinds & ~scalar_kind::kString) == 0;
}

}  // namespace

RowColumn::RowColumn(KeyPath path, std::int64_t rows_before, bool defers_nulls, bool keeps_kinds)
    : path_(std::move(path)),
      keeps_kinds_(keeps_kinds),
      is_nullable_(rows_before > 0),
      rows_(block_column()),
      rows_before_(rows_before),
      defers_nulls_(defers_nulls) {}

RowColumn::RowColumn(Column wanted, bool keeps_kinds)
    : path_(wanted.path),
      type_(type_of(wanted)),
      wanted_(std::move(wanted)),
      is_locked_(true),
      keeps_kinds_(keeps_kinds),
      is_nullable_(wanted_.nullable),
      rows_(block_column()) {}

std::optional<RowType> RowColumn::with(const RowType& value) const {
  if (is_locked_) return std::nullopt;
  auto joined = join(type_, value);
  if (joined && keeps_kinds_ && !keeps_values(*joined)) return std::nullopt;
  if (!joined || defers_nulls_ || !joined->has_null) return joined;
  if (!joined->has_elements) {
    RowType floats = RowType::scalar(DType::float64);
    floats.form = RowForm::list;
    joined = join(*joined, floats);
  }
  if (!joined->takes_nulls()) return std::nullopt;
  return joined;
}

// --- values ---

bool RowColumn::add(std::nullptr_t) {
  if (is_locked_ && !wanted_.nullable) return false;
  add_nulls(1);
  return true;
}

void RowColumn::add_nulls(std::int64_t count) {
  if (count == 0) return;
  is_nullable_ = true;
  rows_.add_nulls(count);
  if (type_.form != RowForm::scalar || !type_.is_number()) return;
  for (std::int64_t i = 0; origins_.is_kept() && i < count; ++i) note(Origins::Kind::same);
}

void RowColumn::mark_valid() {
  const std::int64_t row = num_rows() - 1;
  if (wanted_.nullable && rows_.is_valid(row)) marked_valid_.push_back(row);
}

bool RowColumn::add_array(DType dtype, std::span<const std::int64_t> shape,
                          const std::byte* elements) {
  if (shape.empty()) return is_scalar() && put_number(dtype, elements) && end_scalar();
  if (!is_list() || !takes_numbers() ||
      !std::equal(shape.begin() + 1, shape.end(), type_.inner.begin(), type_.inner.end())) {
    return false;
  }
  const std::int64_t count = numel_of(Shape(shape.begin(), shape.end()));
  return put_elements(dtype, elements, count) && end_list(shape[0]);
}

bool RowColumn::add_rows(const Tensor& array) {
  const DType dtype = array.dtype();
  const std::byte* const elements = array.raw_data();
  const std::int64_t count = array.shape()[0];
  const auto row_shape = std::span(array.shape()).subspan(1);
  const bool at_once = dtype == type_.dtype && takes_numbers() && row_shape.empty() && is_scalar();
  if (at_once) {
    put_numbers(elements, count);
    rows_.num_rows += count;
    return true;
  }
  const auto row_bytes =
      static_cast<std::size_t>(numel_of(Shape(row_shape.begin(), row_shape.end()))) *
      itemsize(dtype);
  for (std::int64_t row = 0; row < count; ++row) {
    if (!add_array(dtype, row_shape, elements + static_cast<std::size_t>(row) * row_bytes)) {
      return false;
    }
  }
  return true;
}

bool RowColumn::add_json(std::string_view text) {
  if (!takes_json()) return false;
  rows_.values.append(text);
  return end_scalar();
}

bool RowColumn::end_list(std::int64_t length) {
  const std::int64_t before = rows_.ends.empty() ? 0 : rows_.ends.back();
  // Elements of 0 numbers have no bytes, so end_of_values() cannot count them.
  const std::int64_t found = numel_of(type_.inner) == 0 ? length : rows_.end_of_values() - before;
  const bool fits = !is_locked_ || wanted_.ragged || found == wanted_.shape[0];
  if (fits) rows_.end_row();
  if (fits && type_.is_number()) {
    last_list_bytes_ =
        found * numel_of(type_.inner) * static_cast<std::int64_t>(itemsize(stored_dtype()));
  }
  return fits;
}

std::int64_t RowColumn::elements_in_block() const {
  return static_cast<std::int64_t>(rows_.values.size() / itemsize(stored_dtype()));
}

// --- elements ---

bool RowColumn::put_array(const Tensor& array, std::size_t depth) {
  const auto expected = std::span(type_.inner).subspan(depth);
  const bool fits = is_list() && takes_numbers() && std::ranges::equal(array.shape(), expected);
  return fits && put_elements(array.dtype(), array.raw_data(), array.numel());
}

/// Appends numbers of any dtype.
bool RowColumn::put_elements(DType dtype, const std::byte* elements, std::int64_t count) {
  if (dtype == type_.dtype) {
    put_numbers(elements, count);
    return true;
  }
  if (is_locked_) return put_cast(dtype, elements, count);
  for (std::int64_t i = 0; i < count; ++i) {
    if (!put_number(dtype, elements + static_cast<std::size_t>(i) * itemsize(dtype))) return false;
  }
  return true;
}

/// Appends numbers of the column's dtype.
void RowColumn::put_numbers(const std::byte* elements, std::int64_t count) {
  type_.kinds |= type_of_numbers(type_.dtype, elements, count).kinds;
  rows_.values.append({elements, static_cast<std::size_t>(count) * itemsize(type_.dtype)});
  for (std::int64_t i = 0; origins_.is_kept() && i < count; ++i) note(Origins::Kind::same);
}

void RowColumn::note_other(Origins::Kind kind) {
  origins_.begin(elements_before() + elements_in_block(), Origins::Kind::same);
  origins_.push(kind);
}

bool RowColumn::put_cast(DType dtype, const std::byte* elements, std::int64_t count) {
  if (!type_.is_number() || !can_cast(dtype, type_.dtype) ||
      (keeps_kinds_ && !keeps_kind(dtype, type_.dtype))) {
    return false;
  }
  std::int64_t at = first_not_fitting(dtype, elements, type_.dtype, count);
  if (requires_exact_) {
    const ScalarKinds kinds = type_of_numbers(dtype, elements, count).kinds;
    if ((kinds & scalar_kind::kBool) != 0) return false;
    if (type_.dtype == DType::float64 && (kinds & scalar_kind::kInexact) != 0) at = 0;
  }
  if (at < count) {
    if (!is_complex(dtype)) {
      out_of_range_ = number_text(dtype, elements + static_cast<std::size_t>(at) * itemsize(dtype));
    }
    return false;
  }
  const auto number = static_cast<std::size_t>(count);
  cast_elements(dtype, elements, type_.dtype, rows_.values.extend(number * itemsize(type_.dtype)),
                number);
  return true;
}

/// Appends the string form of a value that is not a string to a column of strings.
bool RowColumn::put_digits(std::string_view text) {
  if (type_.kind != ColumnKind::string || !type_.has_elements || keeps_kinds_) return false;
  if (is_list()) {
    text_origins_.begin(list_elements_before_ + static_cast<std::int64_t>(rows_.item_ends.size()),
                        Origins::Kind::same);
    note_text(Origins::Kind::integer);
  }
  rows_.values.append(text);
  if (is_list()) rows_.end_item();
  return true;
}

bool RowColumn::put(const RowText& text) {
  if (type_.kind != text.kind || !type_.has_elements) return false;
  if (is_list()) note_text(Origins::Kind::same);
  rows_.values.append(text.text);
  if (is_list()) rows_.end_item();
  return true;
}

void RowColumn::note_text(Origins::Kind kind) {
  if (text_origins_.is_kept()) text_origins_.push(kind);
}

bool RowColumn::put(const HugeInteger& integer) {
  const std::string& digits = integer.digits;
  if (!type_.has_elements) return false;
  if (!type_.is_number()) return put_digits(digits);
  if (requires_exact_) out_of_range_ = digits;
  if (!is_locked_ || requires_exact_) return false;
  if (!is_floating_point(type_.dtype) && !is_complex(type_.dtype)) return false;
  double value = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return parsed.ec == std::errc() &&
         put_cast(DType::float64, reinterpret_cast<const std::byte*>(&value), 1);
}

bool RowColumn::put(const RowTime& time) {
  const bool fits = type_.dtype == DType::int64 && type_.has_elements && type_.is_number() &&
                    type_.unit == time.unit &&
                    (type_.clock == Clock::unknown || type_.clock == time.clock);
  if (!fits) return false;
  type_.clock = time.clock;
  append(time.count);
  note(Origins::Kind::same);
  return true;
}

bool RowColumn::put(bool value) {
  if (!type_.has_elements || (!type_.unit.empty() && !is_locked_)) return false;
  if (!type_.is_number()) return put_digits(value ? "true" : "false");
  const auto byte = static_cast<std::byte>(value ? 1 : 0);
  if (type_.dtype == DType::bool_) {
    append(byte);
    note(Origins::Kind::same);
    return true;
  }
  if (is_locked_) return put_cast(DType::bool_, &byte, 1);
  const DType dtype = type_.dtype;
  if (dtype != DType::int64 && dtype != DType::uint64 && dtype != DType::float64) return false;
  type_.kinds |= scalar_kind::kBool;
  note_other(Origins::Kind::boolean);
  return put_cast(DType::bool_, &byte, 1);
}

bool RowColumn::put_other_int(std::int64_t value) {
  if (!type_.has_elements) return false;
  if (!type_.is_number()) return put_digits(std::to_string(value));
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  if (is_locked_) return put_cast(DType::int64, bytes, 1);
  if (type_.dtype == DType::uint64) {
    if (value < 0) return false;
    type_.kinds |= kinds_of(value);
    append(static_cast<std::uint64_t>(value));
    note(Origins::Kind::same);
    return true;
  }
  if (type_.dtype != DType::float64 || !is_exact(value)) return false;
  type_.kinds |= kinds_of(value);
  note_other(Origins::Kind::integer);
  append(static_cast<double>(value));
  return true;
}

bool RowColumn::put(std::uint64_t value) {
  if (!type_.has_elements) return false;
  if (!type_.is_number()) return put_digits(std::to_string(value));
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  if (is_locked_) return put_cast(DType::uint64, bytes, 1);
  const ScalarKinds kinds = kinds_of(value);
  const bool is_inexact = (kinds & scalar_kind::kInexact) != 0;
  if (type_.dtype == DType::uint64) {
    type_.kinds |= kinds;
    append(value);
    note(Origins::Kind::same);
    return true;
  }
  if (type_.dtype != DType::float64 || is_inexact) return false;
  type_.kinds |= kinds;
  note_other(Origins::Kind::integer);
  append(static_cast<double>(value));
  return true;
}

bool RowColumn::put_other_float(double value) {
  if (!type_.has_elements) return false;
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  if (!type_.is_number()) return put_digits(number_text(DType::float64, bytes));
  return is_locked_ && put_cast(DType::float64, bytes, 1);
}

bool RowColumn::put_number(DType dtype, const std::byte* element) {
  const bool is_counted = dtype == DType::int64 || dtype == DType::uint64;
  if (dtype == type_.dtype && type_.is_number() && type_.has_elements && !is_counted) {
    type_.kinds |= RowType::scalar(dtype).kinds;
    rows_.values.append({element, itemsize(dtype)});
    note(Origins::Kind::same);
    return true;
  }
  const auto read = [&]<class T>(T value) {
    std::memcpy(&value, element, sizeof(T));
    return value;
  };
  switch (dtype) {
    case DType::bool_:
      return put(read(std::uint8_t{}) != 0);
    case DType::int64:
      return put(read(std::int64_t{}));
    case DType::uint64: {
      const auto value = read(std::uint64_t{});
      return value >> 63 != 0 || type_.dtype == DType::uint64
                 ? put(value)
                 : put(static_cast<std::int64_t>(value));
    }
    case DType::float64:
      return put(read(double{}));
    default:
      return is_locked_ && put_cast(dtype, element, 1);
  }
}

bool RowColumn::put(std::nullptr_t) {
  if (!takes_null_elements() || (!is_locked_ && !is_list())) return false;
  type_.has_null = true;
  if (first_null_row_ < 0) first_null_row_ = rows_before_ + rows_.num_rows;
  if (!type_.is_number()) return put_digits("null");
  if (!is_locked_) note_other(Origins::Kind::null);
  const DType dtype = stored_dtype();
  fill_null(dtype, rows_.values.extend(itemsize(dtype)), 1);
  return true;
}

// --- promotion ---

void RowColumn::promote_origins(const RowType& type) {
  const bool was_number = type_.has_items() && type_.is_number();
  if (!was_number) return;
  const std::int64_t count = elements_before() + elements_in_block();
  if (!type.is_number()) {
    if (type.form == RowForm::list) text_origins_.begin(count, Origins::Kind::integer);
    return;
  }
  if (!type_.has_elements || type.dtype == type_.dtype) return;
  if (type_.dtype == DType::bool_) {
    origins_.begin(count, Origins::Kind::boolean);
    origins_.become(Origins::Kind::boolean);
  } else if (type.dtype == DType::float64) {
    origins_.begin(count, Origins::Kind::integer);
    origins_.become(Origins::Kind::integer);
  }
}

void RowColumn::promote(const RowType& type) {
  if (first_type_.empty() && type.has_elements) first_type_ = type.text();
  promote_origins(type);
  const Column from = block_column();
  std::int64_t position = elements_before();
  type_ = type;
  begin_row();
  const Column to = block_column();
  if (has_same_storage(from, to)) return;
  rows_.finish();
  ColumnBuilder made(to);
  if (rows_.num_rows > 0) made = convert_chunk(from, rows_.view(), to, &origins(from), &position);
  rows_ = std::move(made);
}

Column RowColumn::block_column(std::int64_t length) const {
  Column column = column_of(type_, length);
  column.path = path_;
  column.nullable = is_nullable_;
  return column;
}

// --- blocks ---

void RowColumn::truncate(std::int64_t num_rows) {
  out_of_range_.clear();
  rows_.truncate(num_rows);
  if (first_null_row_ >= rows_before_ + num_rows) first_null_row_ = -1;
  if (origins_.is_kept() && type_.is_number()) {
    origins_.resize(elements_before() + elements_in_block());
  }
  if (text_origins_.is_kept() && is_list()) {
    text_origins_.resize(list_elements_before_ + static_cast<std::int64_t>(rows_.item_ends.size()));
  }
}

void RowColumn::undo_row(std::int64_t num_rows) {
  truncate(num_rows);
  type_.kinds = before_.kinds;
  type_.clock = before_.clock;
  type_.has_null = before_.has_null;
  is_nullable_ = before_.is_nullable;
}

void RowColumn::compare_lengths() {
  std::int64_t before = 0;
  for (std::size_t row = 0; row < rows_.ends.size() && !has_lengths_; ++row) {
    const std::int64_t length = rows_.ends[row] - before;
    before = rows_.ends[row];
    if (!rows_.is_valid(static_cast<std::int64_t>(row))) continue;
    has_lengths_ = length_ >= 0 && length != length_;
    length_ = length;
  }
}

Column RowColumn::stored() {
  if (!is_locked_ && is_list() && type_.is_number()) compare_lengths();
  Column column = is_locked_ ? wanted_ : block_column(has_lengths_ ? 0 : length_);
  if (!is_locked_ && type_.form == RowForm::none) column.nullable = true;
  name_leaves(column);
  return column;
}

ColumnChunk RowColumn::block() {
  const Column column = stored();
  ColumnChunk chunk = finished(column).view();
  if (!column.has_ends()) chunk.ends = {};
  return chunk;
}

void RowColumn::reserve(std::int64_t num_rows) {
  if (wanted_.has_ends()) return;
  rows_.values.reserve(static_cast<std::size_t>(num_rows) *
                       static_cast<std::size_t>(nbytes_of(wanted_.dtype, wanted_.shape)));
}

BatchColumn RowColumn::take_rows() {
  const std::int64_t num_rows = rows_.num_rows;
  BatchColumn made = batch_column(wanted_, std::move(finished(wanted_)));
  if (marked_valid_.empty()) return made;
  made.valid = valid_of(wanted_, made, num_rows);
  for (const std::int64_t row : marked_valid_) made.valid.mutable_raw_data()[row] = std::byte{1};
  return made;
}

ColumnBuilder& RowColumn::finished(const Column& column) {
  rows_.finish();
  return is_list() && !column.has_ends() && !rows_.valid.empty() ? padded(column) : rows_;
}

/// The lists of the block as rows of fixed size. Elements of rows without a value are NaN or 0.
ColumnBuilder& RowColumn::padded(const Column& column) {
  padded_ = ColumnBuilder(column);
  const std::byte* next = rows_.values.data();
  for (std::int64_t row = 0; row < rows_.num_rows; ++row) {
    if (!rows_.is_valid(row)) {
      padded_.add_nulls(1);
      continue;
    }
    padded_.values.append({next, padded_.row_bytes()});
    padded_.end_row();
    next += padded_.row_bytes();
  }
  padded_.finish();
  return padded_;
}

void RowColumn::clear_block() {
  compare_lengths();
  if (is_list()) {
    list_elements_before_ +=
        type_.is_number() ? elements_in_block() : static_cast<std::int64_t>(rows_.item_ends.size());
  }
  rows_before_ += rows_.num_rows;
  rows_.clear();
  // Rows that were converted to strings are stored as strings, so their origins are not needed.
  if (!type_.is_number()) origins_ = Origins();
  if (!is_list()) text_origins_ = Origins();
}

}  // namespace tenfold

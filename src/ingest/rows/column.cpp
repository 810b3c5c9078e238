#include "ingest/rows/column.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string>
#include <utility>

#include "core/tensor/cast.hpp"
#include "dataset/leaf_names.hpp"
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

}  // namespace

RowColumn::RowColumn(KeyPath path, std::int64_t rows_before, bool defers_nulls)
    : path_(std::move(path)),
      is_nullable_(rows_before > 0),
      rows_before_(rows_before),
      defers_nulls_(defers_nulls) {}

RowColumn::RowColumn(Column wanted)
    : path_(wanted.path),
      type_(type_of(wanted)),
      wanted_(std::move(wanted)),
      is_locked_(true),
      is_nullable_(wanted_.nullable) {}

std::optional<RowType> RowColumn::with(const RowType& value) const {
  if (is_locked_) return std::nullopt;
  auto joined = join(type_, value);
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

bool RowColumn::add_null() {
  if (is_locked_ && !wanted_.nullable) return false;
  add_nulls(1);
  return true;
}

void RowColumn::add_nulls(std::int64_t count) {
  if (count == 0) return;
  is_nullable_ = true;
  if (valid_.empty()) valid_.assign(static_cast<std::size_t>(num_rows_), 1);
  const auto rows = static_cast<std::size_t>(count);
  valid_.insert(valid_.end(), rows, 0);
  if (type_.form == RowForm::scalar && type_.is_number()) {
    const std::size_t at = values_.size();
    values_.resize(at + rows * itemsize(type_.dtype));
    fill_null(type_.dtype, values_.data() + at, count);
    for (std::int64_t i = 0; i < count; ++i) note(Origins::Kind::same);
  } else if (type_.form != RowForm::none) {
    const std::int64_t last = ends_.empty() ? 0 : ends_.back();
    ends_.insert(ends_.end(), rows, last);
  }
  num_rows_ += count;
}

bool RowColumn::add_array(DType dtype, std::span<const std::int64_t> shape,
                          const std::byte* elements) {
  if (!takes_numbers()) return false;
  if (shape.empty()) return is_scalar() && put_number(dtype, elements) && end_scalar();
  if (!is_list() ||
      !std::equal(shape.begin() + 1, shape.end(), type_.inner.begin(), type_.inner.end())) {
    return false;
  }
  const std::int64_t count = elements_per_row(Shape(shape.begin(), shape.end()));
  if (dtype == type_.dtype) {
    put_numbers(elements, count);
    return end_list();
  }
  if (is_locked_) return put_cast(dtype, elements, count) && end_list();
  for (std::int64_t i = 0; i < count; ++i) {
    if (!put_number(dtype, elements + static_cast<std::size_t>(i) * itemsize(dtype))) return false;
  }
  return end_list();
}

bool RowColumn::add_arrays(DType dtype, std::span<const std::int64_t> shape,
                           const std::byte* elements) {
  const auto row_shape = shape.subspan(1);
  const bool at_once = dtype == type_.dtype && takes_numbers() && row_shape.empty() && is_scalar();
  if (at_once) {
    put_numbers(elements, shape[0]);
    if (!valid_.empty()) valid_.insert(valid_.end(), static_cast<std::size_t>(shape[0]), 1);
    num_rows_ += shape[0];
    return true;
  }
  const auto row_bytes =
      static_cast<std::size_t>(elements_per_row(Shape(row_shape.begin(), row_shape.end()))) *
      itemsize(dtype);
  for (std::int64_t row = 0; row < shape[0]; ++row) {
    if (!add_array(dtype, row_shape, elements + static_cast<std::size_t>(row) * row_bytes)) {
      return false;
    }
  }
  return true;
}

bool RowColumn::add_json(std::string_view text) {
  const bool wanted = is_locked_ && is_scalar() && type_.kind == ColumnKind::string;
  if (!is_json() && !wanted) return false;
  put_bytes(text.data(), text.size());
  ends_.push_back(static_cast<std::int64_t>(values_.size()));
  end_row();
  return true;
}

std::int64_t RowColumn::items_in_block() const {
  if (!type_.is_number()) return static_cast<std::int64_t>(item_ends_.size());
  return elements_in_block() / std::max<std::int64_t>(numbers_per_element(), 1);
}

bool RowColumn::end_list() {
  const std::int64_t before = ends_.empty() ? 0 : ends_.back();
  const std::int64_t items = items_in_block();
  if (is_locked_ && !wanted_.ragged && items - before != wanted_.shape[0]) return false;
  ends_.push_back(items);
  end_row();
  return true;
}

std::int64_t RowColumn::elements_in_block() const {
  return static_cast<std::int64_t>(values_.size() / itemsize(stored_dtype()));
}

// --- elements ---

void RowColumn::put_bytes(const void* bytes, std::size_t count) {
  if (count == 0) return;
  const auto* first = static_cast<const std::byte*>(bytes);
  values_.insert(values_.end(), first, first + count);
}

bool RowColumn::put_array(DType dtype, std::span<const std::int64_t> shape,
                          const std::byte* elements) {
  const bool fits = is_list() && takes_numbers() && dtype == type_.dtype &&
                    std::equal(shape.begin(), shape.end(), type_.inner.begin(), type_.inner.end());
  if (fits) put_numbers(elements, numbers_per_element());
  return fits;
}

/// Appends numbers of the column's dtype.
void RowColumn::put_numbers(const std::byte* elements, std::int64_t count) {
  type_.kinds |= type_of_numbers(type_.dtype, elements, count).kinds;
  put_bytes(elements, static_cast<std::size_t>(count) * itemsize(type_.dtype));
  for (std::int64_t i = 0; origins_.is_kept() && i < count; ++i) note(Origins::Kind::same);
}

void RowColumn::note_other(Origins::Kind kind) {
  origins_.begin(elements_before() + elements_in_block(), Origins::Kind::same);
  origins_.push(kind);
}

bool RowColumn::put_cast(DType dtype, const std::byte* elements, std::int64_t count) {
  if (!type_.is_number() || !can_cast(dtype, type_.dtype) ||
      first_not_fitting(dtype, elements, type_.dtype, count) < count) {
    return false;
  }
  const std::size_t at = values_.size();
  values_.resize(at + static_cast<std::size_t>(count) * itemsize(type_.dtype));
  cast_elements(dtype, elements, type_.dtype, values_.data() + at, static_cast<std::size_t>(count));
  return true;
}

/// Appends the string form of a value that is not a string to a column of strings.
bool RowColumn::put_digits(std::string_view text) {
  if (type_.kind != ColumnKind::string || !type_.has_elements) return false;
  if (is_list()) {
    text_origins_.begin(list_elements_before_ + static_cast<std::int64_t>(item_ends_.size()),
                        Origins::Kind::same);
    note_text(Origins::Kind::integer);
  }
  put_bytes(text.data(), text.size());
  if (is_list()) item_ends_.push_back(static_cast<std::int64_t>(values_.size()));
  return true;
}

bool RowColumn::put_text(ColumnKind kind, std::string_view text) {
  if (type_.kind != kind || !type_.has_elements) return false;
  if (is_list()) note_text(Origins::Kind::same);
  put_bytes(text.data(), text.size());
  if (is_list()) item_ends_.push_back(static_cast<std::int64_t>(values_.size()));
  return true;
}

void RowColumn::note_text(Origins::Kind kind) {
  if (text_origins_.is_kept()) text_origins_.push(kind);
}

bool RowColumn::put_huge(std::string_view digits) {
  if (!type_.has_elements) return false;
  if (!type_.is_number()) return put_digits(digits);
  if (!is_locked_ || !is_floating_point(type_.dtype)) return false;
  double value = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return parsed.ec == std::errc() &&
         put_cast(DType::float64, reinterpret_cast<const std::byte*>(&value), 1);
}

bool RowColumn::put_time(std::int64_t count, std::string_view unit, Clock clock) {
  const bool fits = type_.dtype == DType::int64 && type_.has_elements && type_.is_number() &&
                    type_.unit == unit && (type_.clock == Clock::unknown || type_.clock == clock);
  if (!fits) return false;
  type_.clock = clock;
  put(count);
  note(Origins::Kind::same);
  return true;
}

bool RowColumn::put_bool(bool value) {
  if (!type_.has_elements || (!type_.unit.empty() && !is_locked_)) return false;
  if (!type_.is_number()) return put_digits(value ? "true" : "false");
  const auto byte = static_cast<std::byte>(value ? 1 : 0);
  if (type_.dtype == DType::bool_) {
    put(byte);
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
    put(static_cast<std::uint64_t>(value));
    note(Origins::Kind::same);
    return true;
  }
  if (type_.dtype != DType::float64 || !is_exact(value)) return false;
  type_.kinds |= kinds_of(value);
  note_other(Origins::Kind::integer);
  put(static_cast<double>(value));
  return true;
}

bool RowColumn::put_uint(std::uint64_t value) {
  if (!type_.has_elements) return false;
  if (!type_.is_number()) return put_digits(std::to_string(value));
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  if (is_locked_) return put_cast(DType::uint64, bytes, 1);
  const ScalarKinds kinds = kinds_of(value);
  const bool is_inexact = (kinds & scalar_kind::kInexact) != 0;
  if (type_.dtype == DType::uint64) {
    type_.kinds |= kinds;
    put(value);
    note(Origins::Kind::same);
    return true;
  }
  if (type_.dtype != DType::float64 || is_inexact) return false;
  type_.kinds |= kinds;
  note_other(Origins::Kind::integer);
  put(static_cast<double>(value));
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
    put_bytes(element, itemsize(dtype));
    note(Origins::Kind::same);
    return true;
  }
  const auto read = [&]<class T>(T value) {
    std::memcpy(&value, element, sizeof(T));
    return value;
  };
  switch (dtype) {
    case DType::bool_:
      return put_bool(read(std::uint8_t{}) != 0);
    case DType::int64:
      return put_int(read(std::int64_t{}));
    case DType::uint64: {
      const auto value = read(std::uint64_t{});
      return value >> 63 != 0 || type_.dtype == DType::uint64
                 ? put_uint(value)
                 : put_int(static_cast<std::int64_t>(value));
    }
    case DType::float64:
      return put_float(read(double{}));
    default:
      return is_locked_ && put_cast(dtype, element, 1);
  }
}

bool RowColumn::put_null() {
  if ((is_locked_ || !defers_nulls_) && (!type_.has_elements || !type_.takes_nulls())) return false;
  if (!is_locked_ && !is_list()) return false;
  type_.has_null = true;
  if (first_null_row_ < 0) first_null_row_ = rows_before_ + num_rows_;
  if (!type_.is_number()) return put_digits("null");
  if (!is_locked_) note_other(Origins::Kind::null);
  const DType dtype = stored_dtype();
  const std::size_t at = values_.size();
  values_.resize(at + itemsize(dtype));
  fill_null(dtype, values_.data() + at, 1);
  return true;
}

// The current block of a RowColumn: promotion, truncation, and conversion to a chunk.

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
  const bool has_rows = num_rows_ > 0;
  std::int64_t position = elements_before();
  const ColumnChunk chunk = gathered();
  const RowType before = std::exchange(type_, type);
  const Column to = block_column();
  if (before.form != RowForm::none && has_same_storage(from, to)) return;
  OwnedChunk made;
  if (has_rows) made = convert_chunk(from, chunk, to, &origins(from), &position);
  values_ = std::move(made.values);
  ends_ = std::move(made.ends);
  item_ends_ = std::move(made.item_ends);
}

Column RowColumn::block_column() const {
  Column column;
  column.path = path_;
  column.nullable = is_nullable_;
  column.dtype = DType::float64;
  if (type_.form == RowForm::none) return column;
  column.ragged = is_list();
  if (is_list()) column.shape = type_.inner;
  if (!type_.has_elements) return column;
  column.kind = type_.kind;
  column.dtype = type_.dtype;
  column.unit = type_.unit;
  return column;
}

ColumnChunk RowColumn::gathered() const { return {num_rows_, values_, ends_, item_ends_, valid_}; }

// --- blocks ---

void RowColumn::truncate(std::int64_t num_rows) {
  num_rows_ = num_rows;
  if (first_null_row_ >= rows_before_ + num_rows) first_null_row_ = -1;
  const auto rows = static_cast<std::size_t>(num_rows);
  if (valid_.size() > rows) valid_.resize(rows);
  if (type_.form == RowForm::none) return;
  if (type_.form == RowForm::scalar && type_.is_number()) {
    values_.resize(rows * itemsize(type_.dtype));
  } else {
    ends_.resize(rows);
    auto end = static_cast<std::size_t>(rows == 0 ? 0 : ends_.back());
    if (is_list() && !type_.is_number()) {
      item_ends_.resize(end);
      end = static_cast<std::size_t>(end == 0 ? 0 : item_ends_.back());
    } else if (is_list()) {
      end *= static_cast<std::size_t>(numbers_per_element()) * itemsize(stored_dtype());
    }
    values_.resize(end);
  }
  if (origins_.is_kept() && type_.is_number()) {
    origins_.resize(elements_before() + elements_in_block());
  }
  if (text_origins_.is_kept() && is_list()) {
    text_origins_.resize(list_elements_before_ + static_cast<std::int64_t>(item_ends_.size()));
  }
}

void RowColumn::compare_lengths() {
  std::int64_t before = 0;
  for (std::size_t row = 0; row < ends_.size() && !has_lengths_; ++row) {
    const std::int64_t length = ends_[row] - before;
    before = ends_[row];
    if (!valid_.empty() && valid_[row] == 0) continue;
    has_lengths_ = length_ >= 0 && length != length_;
    length_ = length;
  }
}

Column RowColumn::stored() {
  Column column = is_locked_ ? wanted_ : block_column();
  if (!is_locked_ && type_.form == RowForm::none) column.nullable = true;
  if (!is_locked_ && is_list() && type_.is_number() && type_.has_items()) {
    compare_lengths();
    if (!has_lengths_ && length_ > 0) {
      column.ragged = false;
      column.shape.insert(column.shape.begin(), length_);
    }
  }
  name_leaves(column);
  return column;
}

ColumnChunk RowColumn::block() {
  const Column column = stored();
  const bool is_padded = !column.has_ends() && (type_.form == RowForm::none || is_list()) &&
                         (!valid_.empty() || type_.form == RowForm::none);
  ColumnChunk chunk = is_padded ? padded(column) : gathered();
  if (!column.has_ends()) chunk.ends = {};
  if (std::find(valid_.begin(), valid_.end(), 0) == valid_.end()) chunk.valid = {};
  return chunk;
}

/// Rows of fixed size; rows without a value are filled with missing values.
ColumnChunk RowColumn::padded(const Column& column) {
  const std::int64_t count = elements_per_row(column.shape);
  const std::size_t row_bytes = static_cast<std::size_t>(count) * itemsize(column.dtype);
  padded_.resize(static_cast<std::size_t>(num_rows_) * row_bytes);
  const std::byte* next = values_.data();
  for (std::int64_t row = 0; row < num_rows_; ++row) {
    std::byte* into = padded_.data() + static_cast<std::size_t>(row) * row_bytes;
    const bool is_valid = type_.form != RowForm::none &&
                          (valid_.empty() || valid_[static_cast<std::size_t>(row)] != 0);
    if (is_valid) {
      std::memcpy(into, next, row_bytes);
      next += row_bytes;
    } else {
      fill_null(column.dtype, into, count);
    }
  }
  return {num_rows_, padded_, {}, {}, valid_};
}

void RowColumn::clear_block() {
  compare_lengths();
  if (is_list()) {
    list_elements_before_ +=
        type_.is_number() ? elements_in_block() : static_cast<std::int64_t>(item_ends_.size());
  }
  rows_before_ += num_rows_;
  num_rows_ = 0;
  values_.clear();
  ends_.clear();
  item_ends_.clear();
  valid_.clear();
  // Rows that were converted to strings are stored as strings, so their origins are not needed.
  if (!type_.is_number()) origins_ = Origins();
  if (!is_list()) text_origins_ = Origins();
}

}  // namespace tenfold

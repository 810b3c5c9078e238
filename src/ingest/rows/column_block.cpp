// The block of rows that a RowColumn gathers: promoted, cut, and handed over.

#include <algorithm>
#include <cstring>
#include <utility>

#include "ingest/rows/column.hpp"
#include "ingest/table/fit_chunk.hpp"

namespace tenfold {

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
  if (before.form != RowForm::none && stored_alike(from, to)) return;
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

/// Fixed rows, those without a value filled.
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
  // What is text now is text in the files, too.
  if (!type_.is_number()) origins_ = Origins();
  if (!is_list()) text_origins_ = Origins();
}

}  // namespace tenfold

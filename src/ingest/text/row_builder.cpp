#include "ingest/text/row_builder.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/tensor/cast.hpp"
#include "ingest/table/missing_value.hpp"

namespace tenfold {
namespace {

constexpr std::size_t kLeastBytes = 4096;

/// Stores a float with an integer value in a column of integers or bools.
template <class T>
Fit put_whole(double value, std::byte* into) {
  if (value != std::trunc(value)) return Fit::wrong_type;
  // One above the maximum is a power of two, and so exact.
  constexpr double kEnd = 2.0 * static_cast<double>(std::numeric_limits<T>::max() / 2 + 1);
  const bool fits = value >= static_cast<double>(std::numeric_limits<T>::min()) && value < kEnd;
  if (!fits) return Fit::too_large;
  const auto whole = static_cast<T>(value);
  std::memcpy(into, &whole, sizeof(T));
  return Fit::fits;
}

template <class T>
Fit put_integer(const NumberText& number, bool is_given, std::byte* into) {
  if (!number.is_integer) {
    return is_given ? put_whole<T>(to_double(number), into) : Fit::wrong_type;
  }
  std::uint64_t bits = 0;
  const IntegerSize size = to_integer(number, bits);
  if constexpr (std::is_unsigned_v<T>) {
    const bool below = size == IntegerSize::int64 && static_cast<std::int64_t>(bits) < 0;
    if (size == IntegerSize::huge || below || bits > std::uint64_t{std::numeric_limits<T>::max()}) {
      return Fit::too_large;
    }
  } else {
    const auto value = static_cast<std::int64_t>(bits);
    if (size != IntegerSize::int64 || value < std::numeric_limits<T>::min() ||
        value > std::numeric_limits<T>::max()) {
      return Fit::too_large;
    }
  }
  const auto value = static_cast<T>(bits);
  std::memcpy(into, &value, sizeof(T));
  return Fit::fits;
}

Fit put_small_float(double value, DType dtype, std::byte* into) {
  if (!is_floating_point(dtype) || !can_cast(DType::float64, dtype)) return Fit::wrong_type;
  cast_elements(DType::float64, reinterpret_cast<const std::byte*>(&value), dtype, into, 1);
  double back = 0;
  cast_elements(dtype, into, DType::float64, reinterpret_cast<std::byte*>(&back), 1);
  return std::isfinite(value) && !std::isfinite(back) ? Fit::too_large : Fit::fits;
}

Fit put_double(double value, DType dtype, std::byte* into) {
  if (dtype == DType::float64) {
    std::memcpy(into, &value, sizeof(value));
    return Fit::fits;
  }
  if (dtype == DType::float32) {
    const auto narrow = static_cast<float>(value);
    std::memcpy(into, &narrow, sizeof(narrow));
    return std::isfinite(value) && !std::isfinite(narrow) ? Fit::too_large : Fit::fits;
  }
  return put_small_float(value, dtype, into);
}

}  // namespace

Fit put_number(const NumberText& number, DType dtype, bool is_given, std::byte* into) {
  switch (dtype) {
    case DType::bool_:
      return is_given ? put_integer<bool>(number, true, into) : Fit::wrong_type;
    case DType::int8:
      return put_integer<std::int8_t>(number, is_given, into);
    case DType::int16:
      return put_integer<std::int16_t>(number, is_given, into);
    case DType::int32:
      return put_integer<std::int32_t>(number, is_given, into);
    case DType::int64:
      return put_integer<std::int64_t>(number, is_given, into);
    case DType::uint8:
      return put_integer<std::uint8_t>(number, is_given, into);
    case DType::uint16:
      return put_integer<std::uint16_t>(number, is_given, into);
    case DType::uint32:
      return put_integer<std::uint32_t>(number, is_given, into);
    case DType::uint64:
      return put_integer<std::uint64_t>(number, is_given, into);
    default:
      break;
  }
  if (!is_floating_point(dtype)) return Fit::wrong_type;
  if (number.is_integer && !is_given && !is_exact_in_double(number)) return Fit::inexact;
  const double value = to_double(number);
  if (number.is_integer && std::isinf(value)) return Fit::too_large;
  return put_double(value, dtype, into);
}

Fit put_special(double value, DType dtype, std::byte* into) {
  return is_floating_point(dtype) ? put_double(value, dtype, into) : Fit::wrong_type;
}

Fit put_bool(bool value, DType dtype, std::byte* into) {
  if (dtype == DType::bool_) {
    *into = static_cast<std::byte>(value);
    return Fit::fits;
  }
  NumberText number;
  number.digits = value ? 1 : 0;
  number.num_digits = 1;
  number.is_integer = true;
  return put_number(number, dtype, true, into);
}

void GrowingBytes::grow(std::size_t count) {
  const std::size_t wanted = std::max({size_ + count, 2 * capacity_, kLeastBytes});
  auto larger = std::make_unique_for_overwrite<std::byte[]>(wanted);
  if (size_ > 0) std::memcpy(larger.get(), memory_.get(), size_);
  memory_ = std::move(larger);
  capacity_ = wanted;
}

ColumnBuilder::ColumnBuilder(const Target& target, const std::size_t& num_rows)
    : target_(&target),
      has_ends_(target.column.has_ends()),
      item_bytes_(itemsize(target.column.dtype)),
      num_rows_(&num_rows) {
  unit_bytes_ = target.column.is_text()
                    ? 1
                    : std::max<std::size_t>(
                          1, static_cast<std::size_t>(nbytes_of(dtype(), target.column.shape)));
  if (has_ends()) return;
  if (target.form == Form::scalar && target.is_typed) plain_ = dtype();
  row_items_ = static_cast<std::size_t>(numel_of(target.column.shape));
  row_bytes_ = row_items_ * item_bytes_;
}

void ColumnBuilder::set_null() {
  valid_.resize(*num_rows_ + 1, 1);
  valid_[*num_rows_] = 0;
  if (!has_ends()) fill_missing(dtype(), {row_value(), row_bytes_});
}

void ColumnBuilder::end_row() {
  const std::size_t end =
      target_->form == Form::text_list ? item_ends_.size() : values_.size() / unit_bytes_;
  ends_.push_back(static_cast<std::int64_t>(end));
}

/// Adds nulls for the rows since the last value.
void ColumnBuilder::fill_absent() {
  const std::size_t rows = *num_rows_;
  valid_.resize(num_filled_, 1);
  valid_.resize(rows, 0);
  if (has_ends_) {
    ends_.resize(rows, ends_.empty() ? 0 : ends_.back());
  } else {
    fill_missing(dtype(),
                 {values_.data() + num_filled_ * row_bytes_, (rows - num_filled_) * row_bytes_});
  }
  num_filled_ = rows;
}

void ColumnBuilder::undo_row() {
  if (num_filled_ <= *num_rows_) return;
  num_filled_ = *num_rows_;
  valid_.resize(std::min(valid_.size(), num_filled_));
  if (!has_ends()) return;
  ends_.resize(num_filled_);
  const auto end = static_cast<std::size_t>(ends_.empty() ? 0 : ends_.back());
  if (target_->form != Form::text_list) return values_.truncate(end * unit_bytes_);
  item_ends_.resize(end);
  values_.truncate(static_cast<std::size_t>(item_ends_.empty() ? 0 : item_ends_.back()));
}

void ColumnBuilder::finish() {
  if (num_filled_ != *num_rows_) fill_absent();
  if (!has_ends()) values_.truncate(*num_rows_ * row_bytes_);
  valid_.resize(valid_.empty() ? 0 : *num_rows_, 1);
  has_nulls_ = std::ranges::find(valid_, 0) != valid_.end();
  if (!has_nulls_) valid_.clear();
}

void ColumnBuilder::clear() {
  num_filled_ = 0;
  values_.truncate(0);
  ends_.clear();
  item_ends_.clear();
  valid_.clear();
  has_nulls_ = false;
}

ColumnChunk ColumnBuilder::chunk() const {
  ColumnChunk chunk;
  chunk.num_rows = static_cast<std::int64_t>(*num_rows_);
  chunk.values = values_.bytes();
  chunk.ends = ends_;
  chunk.item_ends = item_ends_;
  chunk.valid = valid_;
  return chunk;
}

std::size_t ColumnBuilder::size_bytes() const noexcept {
  return values_.size() + (ends_.size() + item_ends_.size()) * sizeof(std::int64_t) + valid_.size();
}

RowBuilder::RowBuilder(const RowPlan& plan) {
  columns_.reserve(plan.targets.size());
  for (const Target& target : plan.targets) {
    columns_.emplace_back(target, num_rows_);
  }
  std::size_t row_bytes = 1;
  for (const ColumnBuilder& column : columns_) row_bytes += column.row_bytes();
  constexpr std::size_t kMaxBytes = std::size_t{64} << 10;
  constexpr std::size_t kMaxColumnBytes = 512;  // lower bound with very many columns, so that they
                                                // are visited rarely
  constexpr std::size_t kMaxRows = 64;
  const std::size_t most_bytes = std::max(kMaxBytes, columns_.size() * kMaxColumnBytes);
  rows_at_once_ = std::clamp<std::size_t>(most_bytes / row_bytes, 1, kMaxRows);
}

/// Reserves space for several rows: checking every column in every row would take longer than
/// filling it.
void RowBuilder::reserve_rows() {
  for (ColumnBuilder& column : columns_) {
    if (!column.has_ends()) column.reserve_rows(rows_at_once_);
  }
  num_reserved_ += rows_at_once_;
}

void RowBuilder::undo_row() {
  for (ColumnBuilder& column : columns_) column.undo_row();
}
void RowBuilder::clear() {
  for (ColumnBuilder& column : columns_) column.clear();
  num_rows_ = num_reserved_ = 0;
}

std::size_t RowBuilder::size_bytes() const noexcept {
  std::size_t total = 0;
  for (const ColumnBuilder& column : columns_) total += column.size_bytes();
  return total;
}

std::vector<ColumnChunk> RowBuilder::finish() {
  std::vector<ColumnChunk> made;
  made.reserve(columns_.size());
  for (ColumnBuilder& column : columns_) {
    column.finish();
    made.push_back(column.chunk());
  }
  num_reserved_ = num_rows_;
  return made;
}

}  // namespace tenfold

#include "ingest/text/row_builder.hpp"

#include <cmath>
#include <limits>

#include "core/tensor/cast.hpp"
#include "core/tensor/integer_type.hpp"

namespace tenfold {
namespace {

/// Stores a float as an element of any dtype except the complex ones and float4_e2m1fn_x2.
Fit put_cast(double value, DType dtype, std::byte* into) {
  if (!is_floating_point(dtype) && value != std::trunc(value)) return Fit::wrong_type;
  const auto* const bytes = reinterpret_cast<const std::byte*>(&value);
  if (first_not_fitting(DType::float64, bytes, dtype, 1) == 0) return Fit::too_large;
  cast_elements(DType::float64, bytes, dtype, into, 1);
  return Fit::fits;
}

template <class T>
Fit put_integer(const NumberText& number, std::byte* into) {
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
  return put_cast(value, dtype, into);
}

}  // namespace

Fit put_number(const NumberText& number, DType dtype, bool is_given, std::byte* into) {
  const bool is_bool = dtype == DType::bool_;
  if (is_bool || is_integer(dtype)) {
    if (!is_given && (is_bool || !number.is_integer)) return Fit::wrong_type;
    if (!number.is_integer) return put_cast(to_double(number), dtype, into);
    if (is_bool) return put_integer<bool>(number, into);
    return with_integer_type(dtype, [&]<class T>(T) { return put_integer<T>(number, into); });
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

Fit put_bool(bool value, const Target& target, std::byte* into) {
  const DType dtype = target.column.dtype;
  if (dtype == DType::bool_) {
    *into = static_cast<std::byte>(value);
    return Fit::fits;
  }
  if (!target.takes_bools) return Fit::wrong_type;
  NumberText number;
  number.digits = value ? 1 : 0;
  number.num_digits = 1;
  number.is_integer = true;
  return put_number(number, dtype, true, into);
}

TextColumn::TextColumn(const Target& target, const std::int64_t& num_rows)
    : target_(&target),
      item_bytes_(itemsize(target.column.dtype)),
      num_rows_(&num_rows),
      rows_(target.column) {
  if (target.form == Form::scalar && target.is_typed) plain_ = dtype();
}

RowBuilder::RowBuilder(const RowPlan& plan) {
  columns_.reserve(plan.targets.size());
  for (const Target& target : plan.targets) columns_.emplace_back(target, num_rows_);
}

void RowBuilder::undo_row() {
  for (TextColumn& column : columns_) column.undo_row();
}

void RowBuilder::clear() {
  for (TextColumn& column : columns_) column.clear();
  num_rows_ = 0;
}

std::size_t RowBuilder::size_bytes() const noexcept {
  std::size_t total = 0;
  for (const TextColumn& column : columns_) total += column.size_bytes();
  return total;
}

std::vector<ColumnChunk> RowBuilder::finish() {
  std::vector<ColumnChunk> made;
  made.reserve(columns_.size());
  for (TextColumn& column : columns_) made.push_back(column.finish());
  return made;
}

}  // namespace tenfold

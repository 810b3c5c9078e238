#include "ingest/table/column_builder.hpp"

#include <algorithm>
#include <utility>

#include "dataset/row_bytes.hpp"

namespace tenfold {

void GrowingBytes::grow(std::size_t count) {
  constexpr std::size_t kLeastBytes = 4096;
  const std::size_t wanted = std::max({size_ + count, 2 * capacity_, kLeastBytes});
  auto larger = std::make_unique_for_overwrite<std::byte[]>(wanted);
  if (size_ > 0) std::memcpy(larger.get(), memory_.get(), size_);
  memory_ = std::move(larger);
  capacity_ = wanted;
}

Buffer GrowingBytes::release() {
  std::shared_ptr<std::byte[]> owner(std::move(memory_));
  const std::span<std::byte> bytes(owner.get(), std::exchange(size_, 0));
  capacity_ = 0;
  return {bytes, std::move(owner)};
}

void ColumnBuilder::set_layout(const Column& column) {
  has_ends_ = column.has_ends();
  has_items_ = column.is_text() && column.ragged;
  dtype_ = column.dtype;
  const auto bytes = static_cast<std::size_t>(nbytes_of(column.dtype, column.shape));
  row_bytes_ = has_ends_ ? 0 : bytes;
  unit_bytes_ = column.is_text() ? 1 : std::max<std::size_t>(bytes, 1);
}

void ColumnBuilder::add_nulls(std::int64_t count) {
  const auto before = static_cast<std::size_t>(num_rows);
  const std::size_t rows = before + static_cast<std::size_t>(count);
  valid.resize(before, 1);
  valid.resize(rows, 0);
  if (has_ends_) {
    ends.resize(rows, ends.empty() ? 0 : ends.back());
  } else {
    values.resize(rows * row_bytes_);
    const std::size_t bytes = static_cast<std::size_t>(count) * row_bytes_;
    fill_null(dtype_, values.end() - bytes, static_cast<std::int64_t>(bytes / itemsize(dtype_)));
  }
  num_rows += count;
}

void ColumnBuilder::truncate(std::int64_t count) {
  num_rows = count;
  const auto rows = static_cast<std::size_t>(count);
  valid.resize(std::min(valid.size(), rows));
  if (!has_ends_) return values.resize(rows * row_bytes_);
  ends.resize(rows);
  auto end = static_cast<std::size_t>(ends.empty() ? 0 : ends.back());
  if (has_items_) {
    item_ends.resize(end);
    end = static_cast<std::size_t>(item_ends.empty() ? 0 : item_ends.back());
  }
  values.resize(end * unit_bytes_);
}

void ColumnBuilder::clear() {
  num_rows = 0;
  values.clear();
  ends.clear();
  item_ends.clear();
  valid.clear();
}

void ColumnBuilder::finish() {
  if (std::ranges::find(valid, 0) == valid.end()) {
    valid.clear();
  } else {
    valid.resize(static_cast<std::size_t>(num_rows), 1);
  }
}

namespace {

/// Converts end offsets to offsets that start with 0.
Tensor offsets_of(std::span<const std::int64_t> ends) {
  Tensor made = Tensor::zeros(DType::int64, {static_cast<std::int64_t>(ends.size()) + 1});
  std::ranges::copy(ends, made.mutable_data<std::int64_t>() + 1);
  return made;
}

BatchColumn batch_column(const Column& column, const ColumnChunk& rows, Buffer values) {
  BatchColumn made;
  made.column = column;
  Shape shape = column.shape;
  const auto each = std::max<std::uint64_t>(nbytes_of(column.dtype, column.shape), 1);
  shape.insert(shape.begin(), column.has_ends()
                                  ? static_cast<std::int64_t>(rows.values.size() / each)
                                  : rows.num_rows);
  made.values = Tensor(column.dtype, std::move(shape), std::move(values));
  if (column.has_ends()) made.offsets = offsets_of(rows.ends);
  if (column.ragged && column.is_text()) made.item_offsets = offsets_of(rows.item_ends);
  // In float columns with rows of fixed size, NaN marks missing values.
  if (!column.nullable || (!column.has_ends() && is_floating_point(column.dtype))) return made;
  made.valid = Tensor::zeros(DType::bool_, {rows.num_rows});
  std::uint8_t* const valid = reinterpret_cast<std::uint8_t*>(made.valid.mutable_raw_data());
  std::fill_n(std::ranges::copy(rows.valid, valid).out,
              static_cast<std::size_t>(rows.num_rows) - rows.valid.size(), std::uint8_t{1});
  return made;
}

}  // namespace

BatchColumn batch_column(const Column& column, const ColumnChunk& rows) {
  const Buffer values = Buffer::allocate(rows.values.size());
  if (!rows.values.empty()) {
    std::memcpy(values.mutable_data(), rows.values.data(), rows.values.size());
  }
  return batch_column(column, rows, values);
}

BatchColumn batch_column(const Column& column, ColumnBuilder rows) {
  const ColumnChunk view = rows.view();
  return batch_column(column, view, rows.values.release());
}

std::string type_text(const Column& column) {
  std::string text = column.dtype_name();
  if (!column.ragged && column.shape.empty()) return text;
  std::string lengths = column.ragged ? "*" : "";
  for (const std::int64_t length : column.shape) {
    lengths += (lengths.empty() ? "" : ", ") + std::to_string(length);
  }
  return text + "[" + lengths + "]";
}

std::string described(const Column& column) {
  return type_text(column) + (column.unit.empty() ? "" : " (" + column.unit + ")");
}

}  // namespace tenfold

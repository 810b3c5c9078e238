#include "dataset/fixed_rows.hpp"

#include <cstring>
#include <utility>

#include "base/checked.hpp"

namespace tenfold {
namespace {

/// Alignment in bytes of the offset of each tensor in the block. Memory of the pool has the same
/// alignment, so no two tensors share a cache line, and vector loads are aligned.
constexpr std::uint64_t kAlignment = 64;

/// Returns true if a batch has a validity tensor for the column. A column of floats with rows of
/// fixed size needs none, because NaN marks missing values. In a ragged column, a missing row has
/// no element that could be NaN.
bool has_validity(const Column& column) noexcept {
  return column.nullable && (column.has_ends() || !is_floating_point(column.dtype));
}

}  // namespace

FixedRows::FixedRows(const DatasetState& state, std::size_t num_rows,
                     std::vector<BatchColumn>& columns) {
  const auto length = static_cast<std::int64_t>(num_rows);
  std::uint64_t total_bytes = 0;
  std::vector<std::uint64_t> offsets;
  offsets.reserve(2 * columns.size());
  const auto reserve = [&](std::uint64_t row_bytes) {
    offsets.push_back(total_bytes);
    total_bytes = base::align_up(total_bytes + row_bytes * num_rows, kAlignment);
  };
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (!columns[i].column.has_ends()) reserve(row_bytes_of(columns[i].column));
    if (has_validity(columns[i].column)) reserve(1);
  }
  const Buffer block = state.pool.take(static_cast<std::size_t>(total_bytes));
  sources_.reserve(offsets.size() * state.parts.size());
  copies_.reserve(offsets.size());
  std::size_t next = 0;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    BatchColumn& into = columns[i];
    if (!into.column.has_ends()) {
      into.values =
          tensor_in(into.column.dtype, batch_shape_of(length, into.column), block, offsets[next++]);
      add(state, into.values, row_bytes_of(into.column), [&](const DatasetPart& part) {
        const StoredColumn& stored = *part.columns[i];
        return RowSource{stored.values.raw_data(), stored.stride_bytes};
      });
    }
    if (has_validity(into.column)) {
      into.valid = tensor_in(DType::bool_, {length}, block, offsets[next++]);
      add(state, into.valid, 1,
          [&](const DatasetPart& part) { return RowSource{part.columns[i]->valid.raw_data(), 1}; });
    }
  }
}

template <class SourceOf>
void FixedRows::add(const DatasetState& state, const Tensor& into, std::uint64_t row_bytes,
                    const SourceOf& source_of) {
  if (into.numel() == 0) return;
  const std::size_t first = sources_.size();
  for (const DatasetPart& part : state.parts) sources_.push_back(source_of(part));
  copies_.push_back({std::span(sources_).subspan(first), row_bytes, into.mutable_raw_data()});
  num_bytes_ += static_cast<std::uint64_t>(into.nbytes());
}

void FixedRows::copy(std::span<const std::uint32_t> parts, std::span<const std::int64_t> rows,
                     std::size_t first) const {
  if (first == 0) return gather_rows(copies_, parts, rows);
  std::vector<RowCopy> moved = copies_;
  for (RowCopy& column : moved) column.out += first * column.row_bytes;
  gather_rows(moved, parts, rows);
}

void FixedRows::clear(std::size_t first, std::size_t count) const {
  for (const RowCopy& column : copies_) {
    std::memset(column.out + first * column.row_bytes, 0,
                static_cast<std::size_t>(column.row_bytes) * count);
  }
}

std::vector<BatchColumn> batch_columns_of(const DatasetState& state) {
  std::vector<BatchColumn> columns(state.schema.size());
  for (std::size_t i = 0; i < columns.size(); ++i) columns[i].column = state.schema.columns()[i];
  return columns;
}

std::uint64_t row_bytes_of(const Column& column) { return nbytes_of(column.dtype, column.shape); }

Shape batch_shape_of(std::int64_t num_rows, const Column& column) {
  Shape shape;
  shape.reserve(1 + column.shape.size());
  shape.push_back(num_rows);
  shape.insert(shape.end(), column.shape.begin(), column.shape.end());
  return shape;
}

Tensor tensor_in(DType dtype, Shape shape, const Buffer& block, std::uint64_t offset_bytes) {
  if (nbytes_of(dtype, shape) == 0) return Tensor::zeros(dtype, std::move(shape));
  Shape strides = contiguous_strides(shape);
  return {dtype, std::move(shape), std::move(strides), block, offset_bytes};
}

}  // namespace tenfold

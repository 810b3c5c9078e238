#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <tenfold/batch.hpp>

#include "dataset/dataset_state.hpp"
#include "dataset/gather_rows.hpp"

namespace tenfold {

/// The fixed-size part of a batch: the values of columns without end offsets, and the validity of
/// nullable columns. Columns of floats without end offsets have no validity, because NaN marks
/// missing values. All tensors are in one block of memory, to which rows of a data set are copied.
///
/// Thread safety: several threads may copy different rows concurrently.
class FixedRows {
 public:
  /// Allocates an uninitialised block for `num_rows` rows, and sets the tensors of `columns` that
  /// are stored in it. `columns` must have one element for each column of the schema.
  FixedRows(const DatasetState& state, std::size_t num_rows, std::vector<BatchColumn>& columns);

  std::uint64_t num_bytes() const noexcept { return num_bytes_; }
  /// Copies rows of the data set to consecutive rows of the block, from row `first` on. `parts`:
  /// the part of each row; empty if there is only one part. `rows`: the index of each row in its
  /// part.
  void copy(std::span<const std::uint32_t> parts, std::span<const std::int64_t> rows,
            std::size_t first) const;
  /// Zeroes `count` rows of the block.
  void clear(std::size_t first, std::size_t count) const;

 private:
  template <class SourceOf>
  void add(const DatasetState& state, const Tensor& into, std::uint64_t row_bytes,
           const SourceOf& source_of);

  std::vector<RowSource> sources_;
  std::vector<RowCopy> copies_;  ///< refer to sources_
  std::uint64_t num_bytes_ = 0;
};

/// Returns for each column of the state a BatchColumn whose tensors are not set.
std::vector<BatchColumn> batch_columns_of(const DatasetState& state);

/// Returns the size of a row of the column, or of an element if the column has end offsets.
std::uint64_t row_bytes_of(const Column& column);

/// Returns [num_rows, *column.shape].
Shape batch_shape_of(std::int64_t num_rows, const Column& column);

/// Returns a contiguous tensor at an offset in a block. A tensor without bytes does not keep the
/// block alive.
Tensor tensor_in(DType dtype, Shape shape, const Buffer& block, std::uint64_t offset_bytes);

}  // namespace tenfold

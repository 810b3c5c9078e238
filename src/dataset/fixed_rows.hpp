#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <tenfold/batch.hpp>

#include "dataset/dataset_state.hpp"
#include "dataset/gather_rows.hpp"

namespace tenfold {

/// The part of a batch that is of fixed length a row: the values of columns without ends, and which
/// values of any column are there. One block of memory, filled from a data set row by row.
///
/// The parts of the data set are open.
///
/// Thread safety: rows that are not the same may be copied by several threads at a time.
class FixedRows {
 public:
  /// Takes the block for so many rows, which hold anything, and gives `columns`, one for each of
  /// the schema, their tensors in it.
  FixedRows(const DatasetState& state, std::size_t num_rows, std::vector<BatchColumn>& columns);

  std::uint64_t num_bytes() const noexcept { return num_bytes_; }
  /// Copies rows (each of the part beside it, of the only part if there are none beside) to those
  /// of the block from number `first` on.
  void copy(std::span<const std::uint32_t> parts, std::span<const std::int64_t> rows,
            std::size_t first) const;
  /// Makes `count` rows of the block zeros.
  void clear(std::size_t first, std::size_t count) const;

 private:
  template <class SourceOf>
  void add(const DatasetState& state, const Tensor& into, std::uint64_t row_bytes,
           const SourceOf& source_of);

  std::vector<RowSource> sources_;
  std::vector<RowCopy> copies_;  ///< from sources_, whose place in memory they hold
  std::uint64_t num_bytes_ = 0;
};

/// One for each column of the state, without values.
std::vector<BatchColumn> batch_columns_of(const DatasetState& state);

/// Of a row of a column, or of an element of one whose rows have ends.
std::uint64_t row_bytes_of(const Column& column);

/// Rows of a column's shape.
Shape batch_shape_of(std::int64_t num_rows, const Column& column);

/// A tensor within a block that a pool gave.
Tensor tensor_in(DType dtype, Shape shape, const Buffer& block, std::uint64_t offset_bytes);

}  // namespace tenfold

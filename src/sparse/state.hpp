#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <tenfold/sparse_matrix.hpp>

#include "base/access.hpp"
#include "base/fail.hpp"
#include "dataset/loader/buffer_pool.hpp"

namespace tenfold {

namespace detail {

/// The state of a matrix: component tensors whose shapes and dtypes fit each other. `is_valid` is
/// true once the values of the indices have been checked, too. The major axis is the row axis in
/// csr and coo, and the column axis in csc; the minor axis is the other one. If `is_sorted`, the
/// entries of each major index are stored contiguously.
struct SparseState {
  TensorDict tree;
  base::Where where;
  SparseLayout layout = SparseLayout::csr;
  std::int64_t num_rows = 0;
  std::int64_t num_cols = 0;
  std::int64_t nnz = 0;
  Tensor ends;           ///< csr, csc: offsets [major_size() + 1], int32 or int64; coo: empty
  Tensor major_indices;  ///< coo: [nnz], the row of each entry
  Tensor minor_indices;  ///< [nnz], int32 or int64: the minor index of each entry
  Tensor values;         ///< [nnz]
  bool is_sorted;        ///< csr, csc: true; coo: whether it is coalesced
  BufferPool pool;
  mutable std::atomic<bool> is_valid{false};  ///< all indices have been checked

  std::int64_t major_size() const noexcept {
    return layout == SparseLayout::csc ? num_cols : num_rows;
  }
  std::int64_t minor_size() const noexcept {
    return layout == SparseLayout::csc ? num_rows : num_cols;
  }
  /// The name of an index of the major axis: "row" or "column".
  const char* major_name() const noexcept { return layout == SparseLayout::csc ? "column" : "row"; }
};

}  // namespace detail

using detail::SparseState;

inline std::shared_ptr<const SparseState> state_of(const SparseMatrix& matrix) {
  return detail::Access::state(matrix);
}

/// Returns the state of a matrix. Checks shapes, dtypes and, in csr and csc, the last end offset.
/// Throws the errors of SparseMatrix(TensorDict).
std::shared_ptr<const SparseState> sparse_state_of(TensorDict node);

/// The entries [begin, end) of one index of the major axis.
struct EntryRange {
  std::int64_t begin;
  std::int64_t end;
};

/// Returns the range of each of `major_indices`, which must be in [0, major_size()). Throws
/// Error(corrupt) for an invalid range, Error(unsupported) unless `is_sorted`.
std::vector<EntryRange> entry_ranges(const SparseState& state,
                                     std::span<const std::int64_t> major_indices);

/// Prefetches the pages of these entries. Does nothing if the values of the matrix take less than 1
/// MiB, or if the values of two sampled ranges are cached. The samples are the first nonempty range
/// of the list, and the first nonempty range of its second half. Without prefetching, a reader has
/// one outstanding request to the storage device at a time.
void prefetch_ranges(const SparseState& state, const std::vector<EntryRange>& ranges);

/// Checks all offsets and indices, once for each state. Throws Error(corrupt) if one is invalid.
void check_indices(const SparseState& state);

/// Throws Error(unsupported) unless the entries are sorted.
void require_sorted(const SparseState& state);

/// Calls `use` for every entry in storage order. Throws Error(corrupt) for invalid indices.
void for_each_entry(const SparseState& state,
                    const std::function<void(std::int64_t major_index, std::int64_t minor_index,
                                             std::int64_t entry)>& use);

/// Throws Error(corrupt): `minor_index`, the minor index of an entry of `major_index`, is out of
/// range.
[[noreturn]] void throw_bad_minor_index(const SparseState& state, std::int64_t major_index,
                                        std::int64_t minor_index);

/// Describes the valid indices of an axis of `length`, for messages: "0 to 8", or "none in an axis
/// of length 0".
std::string index_bounds(std::int64_t length);

// The functions below select rows or columns. They throw Error(corrupt) for an invalid offset or
// index that they read, and Error(unsupported) unless `is_sorted`. The selected indices must be
// within the axis.

/// The entries of selected indices of the major axis: of rows, or of columns if the layout is csc.
struct CompressedRows {
  Tensor ends;  ///< offsets [number of selected indices + 1]
  /// If gather_major() was called with `with_numbers`: int64 [2, n]. For each selected entry, row 0
  /// has the position of its major index in `major_indices`, row 1 has its minor index.
  Tensor numbers;
  Tensor minor_indices;  ///< without `with_numbers`: [n], the minor index of each selected entry
  Tensor values;         ///< [n]
};
/// Throws Error(invalid_argument) if there are more entries than the dtype of the indices can
/// count.
CompressedRows gather_major(const SparseState& state, std::span<const std::int64_t> major_indices,
                            bool with_numbers);

/// Like CompressedRows, but padded with zeros: `minor_indices` and `values` are [number of selected
/// indices, maximum of `lengths`].
struct PaddedRows {
  Tensor minor_indices;
  Tensor values;
  Tensor lengths;  ///< int64: the number of entries of each selected index
};
PaddedRows gather_padded(const SparseState& state, std::span<const std::int64_t> major_indices);

/// Returns a dense matrix with one row for each of `major_indices`, or one column if `as_columns`.
Tensor gather_dense(const SparseState& state, std::span<const std::int64_t> major_indices,
                    bool as_columns);

/// Selects indices of the minor axis. Reads all indices of the matrix. The result has a row for
/// each element of `selected` if `as_rows`, else a column.
SparseRows gather_minor(const SparseState& state, std::span<const std::int64_t> selected,
                        RowsLayout layout, bool as_rows);

/// An entry of the matrix, and its position in a batch.
struct BatchEntry {
  std::int64_t row;
  std::int64_t column;
  std::int64_t entry;  ///< index of the entry in the matrix
};
/// Sorts `entries` by row and column, and builds the batch. `layout` must not be dense.
SparseRows assemble(const SparseState& state, std::vector<BatchEntry> entries,
                    std::int64_t num_rows, std::int64_t num_cols, RowsLayout layout);

}  // namespace tenfold

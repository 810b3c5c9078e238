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

/// What a SparseMatrix is a handle of: parts whose shapes and dtypes fit each other. What the
/// indices say is not known to be sound. A line is what is stored together: a column of csc, a row
/// of the others.
struct SparseState {
  TensorDict tree;
  base::Where where;
  SparseLayout layout = SparseLayout::csr;
  std::int64_t num_rows = 0;
  std::int64_t num_cols = 0;
  std::int64_t nnz = 0;
  Tensor ends;     ///< [num_lines() + 1], int32 or int64; of coo nothing
  Tensor lines;    ///< coo: [nnz], the row of each entry
  Tensor places;   ///< [nnz], int32 or int64: where in its line each entry is
  Tensor values;   ///< [nnz]
  bool is_sorted;  ///< entries are in order, as all but some of coo are
  BufferPool pool;
  mutable std::atomic<bool> is_sound{false};  ///< all indices have been looked at

  std::int64_t num_lines() const noexcept {
    return layout == SparseLayout::csc ? num_cols : num_rows;
  }
  std::int64_t line_length() const noexcept {
    return layout == SparseLayout::csc ? num_rows : num_cols;
  }
  /// "row" or "column", of which it has several together.
  const char* line_name() const noexcept { return layout == SparseLayout::csc ? "column" : "row"; }
};

}  // namespace detail

using detail::SparseState;

inline std::shared_ptr<const SparseState> state_of(const SparseMatrix& matrix) {
  return detail::Access::state(matrix);
}

/// Checks shapes, dtypes and the last end. Throws as SparseMatrix's constructor.
std::shared_ptr<const SparseState> sparse_state_of(TensorDict node);

/// Where the entries of a line are.
struct LineExtent {
  std::int64_t begin;
  std::int64_t end;
};

/// Of lines by number, which are in range. Throws Error(corrupt) if one reaches beyond the entries,
/// Error(unsupported) if those are in no order.
std::vector<LineExtent> extents_of(const SparseState& state, std::span<const std::int64_t> lines);

/// Has the pages of all these lines read at once, where they are not in memory: a reader that
/// touches one after the other waits for one request to the device at a time.
void ask_for(const SparseState& state, const std::vector<LineExtent>& extents);

/// Throws Error(unsupported) unless the entries are in order.
void require_sorted(const SparseState& state);

/// Calls `use` for every entry, as they are stored. Throws Error(corrupt) for what is not sound.
void for_each_entry(
    const SparseState& state,
    const std::function<void(std::int64_t line, std::int64_t place, std::int64_t entry)>& use);

/// Throws Error(corrupt) saying that an entry of `line` has no place in it.
[[noreturn]] void throw_bad_place(const SparseState& state, std::int64_t line, std::int64_t place);

/// The lines themselves, copied: csr and coo in lines and places, whatever the matrix calls them.
struct LineParts {
  Tensor ends;     ///< [lines + 1]
  Tensor numbers;  ///< if `with_numbers`: int64 [2, nnz]: number among the lines, place
  Tensor places;   ///< [nnz], unless `with_numbers`
  Tensor values;   ///< [nnz]
};
LineParts gather_lines(const SparseState& state, std::span<const std::int64_t> lines,
                       bool with_numbers);

/// Lines side by side with zeros behind them: `places` and `values` [lines, longest].
struct PaddedLines {
  Tensor places;
  Tensor values;
  Tensor lengths;
};
PaddedLines gather_padded(const SparseState& state, std::span<const std::int64_t> lines);

/// Lines as rows (or `as_columns`) of a dense matrix.
Tensor gather_dense(const SparseState& state, std::span<const std::int64_t> lines, bool as_columns);

/// Places `wanted` of every line, which reads all indices. `as_rows`: the result has a row for each
/// of `wanted`, else a column.
SparseRows gather_across(const SparseState& state, std::span<const std::int64_t> wanted,
                         RowsLayout layout, bool as_rows);

/// An entry on its way into a batch.
struct PlacedEntry {
  std::int64_t row;
  std::int64_t column;
  std::int64_t entry;  ///< its number in the matrix
};
/// The batch of these entries, which get sorted.
SparseRows assemble(const SparseState& state, std::vector<PlacedEntry> entries,
                    std::int64_t num_rows, std::int64_t num_cols, RowsLayout layout);

}  // namespace tenfold

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

/// The state behind a SparseMatrix, which is a handle: parts whose shapes and dtypes fit each
/// other. The values of the indices may be invalid. A line is an index of the major axis: a column
/// of csc, a row of the other layouts.
struct SparseState {
  TensorDict tree;
  base::Where where;
  SparseLayout layout = SparseLayout::csr;
  std::int64_t num_rows = 0;
  std::int64_t num_cols = 0;
  std::int64_t nnz = 0;
  Tensor ends;     ///< csr, csc: offsets [num_lines() + 1], int32 or int64; coo: empty
  Tensor lines;    ///< coo: [nnz], the row of each entry
  Tensor places;   ///< [nnz], int32 or int64: the minor index of each entry
  Tensor values;   ///< [nnz]
  bool is_sorted;  ///< entries are sorted; only coo may be unsorted
  BufferPool pool;
  mutable std::atomic<bool> is_valid{false};  ///< all indices have been checked

  std::int64_t num_lines() const noexcept {
    return layout == SparseLayout::csc ? num_cols : num_rows;
  }
  std::int64_t line_length() const noexcept {
    return layout == SparseLayout::csc ? num_rows : num_cols;
  }
  /// The name of a line in this layout: "row" or "column".
  const char* line_name() const noexcept { return layout == SparseLayout::csc ? "column" : "row"; }
};

}  // namespace detail

using detail::SparseState;

inline std::shared_ptr<const SparseState> state_of(const SparseMatrix& matrix) {
  return detail::Access::state(matrix);
}

/// Checks shapes, dtypes and the last end. Throws as SparseMatrix's constructor.
std::shared_ptr<const SparseState> sparse_state_of(TensorDict node);

/// The range of a line's entries.
struct LineExtent {
  std::int64_t begin;
  std::int64_t end;
};

/// The ranges of these lines, whose numbers must be valid. Throws Error(corrupt) if one exceeds the
/// entries, Error(unsupported) if entries are unsorted.
std::vector<LineExtent> extents_of(const SparseState& state, std::span<const std::int64_t> lines);

/// Prefetches all pages of these lines that are not cached. A reader without this has one
/// outstanding request to the device at a time.
void prefetch_extents(const SparseState& state, const std::vector<LineExtent>& extents);

/// Throws Error(unsupported) unless the entries are sorted.
void require_sorted(const SparseState& state);

/// Calls `use` for every entry in storage order. Throws Error(corrupt) for invalid indices.
void for_each_entry(
    const SparseState& state,
    const std::function<void(std::int64_t line, std::int64_t place, std::int64_t entry)>& use);

/// Throws Error(corrupt): `place`, the minor index of an entry of `line`, is out of range.
[[noreturn]] void throw_bad_place(const SparseState& state, std::int64_t line, std::int64_t place);

/// Copied lines of csr or coo. The names do not depend on the layout of the matrix.
struct LineParts {
  Tensor ends;     ///< offsets [lines + 1]
  Tensor numbers;  ///< if `with_numbers`: int64 [2, nnz]: position in `lines`, minor index
  Tensor places;   ///< minor indices [nnz], unless `with_numbers`
  Tensor values;   ///< [nnz]
};
LineParts gather_lines(const SparseState& state, std::span<const std::int64_t> lines,
                       bool with_numbers);

/// Lines padded with zeros: `places` and `values` are [lines, longest].
struct PaddedLines {
  Tensor places;
  Tensor values;
  Tensor lengths;
};
PaddedLines gather_padded(const SparseState& state, std::span<const std::int64_t> lines);

/// The lines as rows, or `as_columns`, of a dense matrix.
Tensor gather_dense(const SparseState& state, std::span<const std::int64_t> lines, bool as_columns);

/// Selects the minor indices `wanted` of every line, which reads all indices. `as_rows`: the result
/// has a row for each element of `wanted`, else a column.
SparseRows gather_across(const SparseState& state, std::span<const std::int64_t> wanted,
                         RowsLayout layout, bool as_rows);

/// An entry of the matrix, and its position in a batch.
struct PlacedEntry {
  std::int64_t row;
  std::int64_t column;
  std::int64_t entry;  ///< index of the entry in the matrix
};
/// Sorts these entries and builds the batch.
SparseRows assemble(const SparseState& state, std::vector<PlacedEntry> entries,
                    std::int64_t num_rows, std::int64_t num_cols, RowsLayout layout);

}  // namespace tenfold

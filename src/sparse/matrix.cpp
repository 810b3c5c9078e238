#include <tenfold/sparse_matrix.hpp>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>
#include <tenfold/sparse_builder.hpp>

#include "base/fail.hpp"
#include "core/tree/sparse.hpp"
#include "sparse/growth.hpp"
#include "sparse/state.hpp"

namespace tenfold {
namespace {

void require_inside(const SparseState& state, const char* what, std::int64_t index,
                    std::int64_t length) {
  if (index >= 0 && index < length) return;
  throw base::invalid_argument(state.where)
      .part(what)
      .expected("an index in [0, ", length, ")")
      .found(index);
}

void require_inside(const SparseState& state, const char* what,
                    std::span<const std::int64_t> indices, std::int64_t length) {
  for (const std::int64_t index : indices) require_inside(state, what, index, length);
}

/// Finds the position of `column`, or where it would be inserted, among the entries of `row` of a
/// coo matrix. Returns the entry before this position and the entry at it, if they belong to `row`.
template <class Index>
EntryRange entries_near(const SparseState& state, std::int64_t row, std::int64_t column) {
  const Index* rows = state.major_indices.data<Index>();
  const Index* columns = state.minor_indices.data<Index>();
  std::int64_t place = 0;
  for (std::int64_t count = state.nnz; count > 0;) {
    const std::int64_t middle = place + count / 2;
    if (rows[middle] < row || (rows[middle] == row && columns[middle] < column)) {
      count -= count / 2 + 1;
      place = middle + 1;
    } else {
      count /= 2;
    }
  }
  const bool has_left = place > 0 && rows[place - 1] == row;
  const bool has_right = place < state.nnz && rows[place] == row;
  return {has_left ? place - 1 : place, has_right ? place + 1 : place};
}

EntryRange entries_near(const SparseState& state, std::int64_t row, std::int64_t column) {
  require_sorted(state);
  return state.minor_indices.dtype() == DType::int32
             ? entries_near<std::int32_t>(state, row, column)
             : entries_near<std::int64_t>(state, row, column);
}

/// Returns the selected rows (csc: columns) as rows of a batch.
SparseRows major_as_rows(const SparseState& state, std::span<const std::int64_t> major_indices,
                         RowsLayout layout) {
  SparseRows made;
  made.layout = layout;
  made.num_rows = static_cast<std::int64_t>(major_indices.size());
  made.num_cols = state.minor_size();
  if (layout == RowsLayout::dense) {
    made.values = gather_dense(state, major_indices, false);
  } else if (layout == RowsLayout::padded) {
    PaddedRows padded = gather_padded(state, major_indices);
    made.values = std::move(padded.values);
    made.indices = std::move(padded.minor_indices);
    made.lengths = std::move(padded.lengths);
  } else {
    CompressedRows parts = gather_major(state, major_indices, layout == RowsLayout::coo);
    made.values = std::move(parts.values);
    made.indices =
        layout == RowsLayout::coo ? std::move(parts.numbers) : std::move(parts.minor_indices);
    if (layout == RowsLayout::csr) made.crow_indices = std::move(parts.ends);
  }
  return made;
}

/// Returns the selected rows (csc: columns) as columns of a batch. In the padded layout, each row
/// of the tensors still holds the entries of one selected index.
SparseRows major_as_columns(const SparseState& state, std::span<const std::int64_t> major_indices,
                            RowsLayout layout) {
  SparseRows made;
  if (layout == RowsLayout::padded) {
    made = major_as_rows(state, major_indices, layout);
    std::swap(made.num_rows, made.num_cols);
    return made;
  }
  const auto count = static_cast<std::int64_t>(major_indices.size());
  if (layout != RowsLayout::dense) {
    std::vector<BatchEntry> entries;
    const std::vector<EntryRange> ranges = entry_ranges(state, major_indices);
    const bool is_narrow = state.minor_indices.dtype() == DType::int32;
    for (std::size_t i = 0; i < major_indices.size(); ++i) {
      for (std::int64_t entry = ranges[i].begin; entry < ranges[i].end; ++entry) {
        const std::int64_t minor_index = is_narrow
                                             ? state.minor_indices.data<std::int32_t>()[entry]
                                             : state.minor_indices.data<std::int64_t>()[entry];
        if (minor_index < 0 || minor_index >= state.minor_size()) {
          throw_bad_minor_index(state, major_indices[i], minor_index);
        }
        entries.push_back({minor_index, static_cast<std::int64_t>(i), entry});
      }
    }
    return assemble(state, std::move(entries), state.minor_size(), count, layout);
  }
  made.layout = layout;
  made.num_rows = state.minor_size();
  made.num_cols = count;
  made.values = gather_dense(state, major_indices, true);
  return made;
}

}  // namespace

SparseMatrix::SparseMatrix(const Path& path, Mode mode)
    : growth_(std::make_shared<SparseGrowth>(path, mode)) {}

SparseMatrix::SparseMatrix(TensorDict node) : state_(sparse_state_of(std::move(node))) {}

std::shared_ptr<const SparseState> SparseMatrix::state() const {
  return growth_ ? growth_->state() : state_;
}

SparseGrowth& SparseMatrix::growth(const char* what) const {
  if (growth_) return *growth_;
  throw base::unsupported()
      .part("sparse matrix: ", what)
      .expected("one that was opened from its own path")
      .found("one in memory or in a tree")
      .remedy("save it and open the saved path");
}

void SparseMatrix::append_rows(const SparseMatrix& rows) { growth("append_rows").append(rows); }
void SparseMatrix::flush() { growth("flush").flush(); }
void SparseMatrix::close() { growth("close").close(); }
void SparseMatrix::refresh() { growth("refresh").refresh(); }

SparseMatrix SparseMatrix::of_parts(SparseLayout layout, std::int64_t num_rows,
                                    std::int64_t num_cols, std::span<const Tensor> parts) {
  NodeInfo info;
  info.kind = NodeKind::sparse;
  info.layout = "sparse_" + to_string(layout);
  info.dense_shape = {num_rows, num_cols};
  info.is_coalesced = layout == SparseLayout::coo;
  const auto names = sparse_parts(info.layout);
  if (parts.size() != names.size()) {
    throw base::invalid_argument()
        .part("sparse matrix")
        .expected(names.size(), " component tensors")
        .found(parts.size());
  }
  TensorDict node(info);
  for (std::size_t i = 0; i < parts.size(); ++i) node.set(names[i], parts[i]);
  try {
    SparseMatrix made(std::move(node));
    made.check();
    return made;
  } catch (const Error& error) {
    // The components are arguments of the caller, so they are invalid rather than corrupt.
    if (error.code() != ErrorCode::corrupt) throw;
    throw Error(error).code(ErrorCode::invalid_argument);
  }
}

SparseLayout SparseMatrix::layout() const { return state()->layout; }
std::int64_t SparseMatrix::num_rows() const { return state()->num_rows; }
std::int64_t SparseMatrix::num_cols() const { return state()->num_cols; }
std::int64_t SparseMatrix::nnz() const { return state()->nnz; }
DType SparseMatrix::dtype() const { return state()->values.dtype(); }
DType SparseMatrix::index_dtype() const { return state()->minor_indices.dtype(); }

/// Reads shape, indices and values from one state, because another thread may append rows.
SparseMatrix SparseMatrix::transposed() const {
  const auto held = this->state();
  const SparseState& state = *held;
  if (state.layout == SparseLayout::coo) {
    check();  // else the builder would report invalid coordinates as arguments of the caller
    SparseBuilder builder(
        state.num_cols, state.num_rows, state.values.dtype(),
        {.layout = SparseLayout::coo, .index_dtype = state.minor_indices.dtype()});
    const Tensor indices = state.tree.at("indices");
    builder.add(indices.select(1), indices.select(0), state.tree.at("values"));
    return builder.finish();
  }
  const bool by_row = state.layout == SparseLayout::csr;
  NodeInfo info;
  info.kind = NodeKind::sparse;
  info.layout = by_row ? "sparse_csc" : "sparse_csr";
  info.dense_shape = {state.num_cols, state.num_rows};
  const auto before = sparse_parts(by_row ? "sparse_csr" : "sparse_csc");
  const auto after = sparse_parts(info.layout);
  TensorDict node(info);
  for (std::size_t i = 0; i < before.size(); ++i) {
    node.set(after[i], state.tree.get(std::string(before[i])));
  }
  return SparseMatrix(std::move(node));
}

TensorDict SparseMatrix::tree() const { return state()->tree; }
std::string SparseMatrix::where() const { return state()->where.text(); }

Tensor SparseMatrix::at(std::int64_t row, std::int64_t column) const {
  const auto held = this->state();
  const SparseState& state = *held;
  require_inside(state, "row", row, state.num_rows);
  require_inside(state, "column", column, state.num_cols);
  const bool by_column = state.layout == SparseLayout::csc;
  const std::int64_t major_index = by_column ? column : row;
  const std::int64_t minor_index = by_column ? row : column;
  const EntryRange range = state.layout == SparseLayout::coo
                               ? entries_near(state, row, column)
                               : entry_ranges(state, std::span(&major_index, 1)).front();
  Tensor element = Tensor::zeros(state.values.dtype(), {});
  const auto find = [&](const auto* minor_indices) {
    const auto* end = minor_indices + range.end;
    const auto* begin = minor_indices + range.begin;
    const auto* found = std::lower_bound(begin, end, minor_index);
    if (found != begin && found[-1] < 0) throw_bad_minor_index(state, major_index, found[-1]);
    if (found != end && *found >= state.minor_size()) {
      throw_bad_minor_index(state, major_index, *found);
    }
    return found != end && *found == minor_index ? found - minor_indices : std::int64_t{-1};
  };
  const std::int64_t entry = state.minor_indices.dtype() == DType::int32
                                 ? find(state.minor_indices.data<std::int32_t>())
                                 : find(state.minor_indices.data<std::int64_t>());
  if (entry >= 0) {
    const std::size_t size = state.values.itemsize();
    std::memcpy(element.mutable_raw_data(),
                state.values.raw_data() + static_cast<std::size_t>(entry) * size, size);
  }
  return element;
}

SparseRows SparseMatrix::rows(std::span<const std::int64_t> rows, RowsLayout layout) const {
  const auto state = this->state();
  require_inside(*state, "row", rows, state->num_rows);
  if (state->layout == SparseLayout::csc) return gather_minor(*state, rows, layout, true);
  return major_as_rows(*state, rows, layout);
}

void SparseMatrix::will_need(std::span<const std::int64_t> rows) const {
  const auto state = this->state();
  require_inside(*state, "row", rows, state->num_rows);
  if (state->layout == SparseLayout::csr) prefetch_ranges(*state, entry_ranges(*state, rows));
}

SparseRows SparseMatrix::cols(std::span<const std::int64_t> columns, RowsLayout layout) const {
  const auto state = this->state();
  require_inside(*state, "column", columns, state->num_cols);
  if (state->layout == SparseLayout::csc) return major_as_columns(*state, columns, layout);
  return gather_minor(*state, columns, layout, false);
}

void SparseMatrix::check() const { check_indices(*state()); }

Path SparseMatrix::save(const Path& path, const SaveOptions& options) const {
  return tenfold::save(tree(), path, options);
}

}  // namespace tenfold

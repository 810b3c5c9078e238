// Selects columns of a matrix that is stored by row, and rows of a matrix that is stored by column.
// Reads all indices of the matrix. Except for the dense layout, needs memory for a list of the
// selected entries.

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <tuple>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "sparse/state.hpp"

namespace tenfold {
namespace {

/// The requested minor indices, each of which may be requested several times.
class SelectedIndices {
 public:
  explicit SelectedIndices(std::span<const std::int64_t> minor_indices) {
    sorted_.reserve(minor_indices.size());
    for (std::size_t i = 0; i < minor_indices.size(); ++i) {
      sorted_.emplace_back(minor_indices[i], static_cast<std::int64_t>(i));
      may_be_[slot(minor_indices[i])] = true;
    }
    std::sort(sorted_.begin(), sorted_.end());
  }

  /// Calls use(position) for each position at which `minor_index` was requested.
  template <class Use>
  void for_each(std::int64_t minor_index, const Use& use) const {
    // A small filter in L1 rejects most of the indices that were not requested.
    if (!may_be_[slot(minor_index)]) return;
    const auto lowest = std::pair(minor_index, std::int64_t{0});
    for (auto found = std::lower_bound(sorted_.begin(), sorted_.end(), lowest);
         found != sorted_.end() && found->first == minor_index; ++found) {
      use(found->second);
    }
  }

 private:
  static constexpr std::size_t kSlots = 1 << 14;
  static std::size_t slot(std::int64_t minor_index) {
    return static_cast<std::size_t>(minor_index) % kSlots;
  }
  std::vector<std::pair<std::int64_t, std::int64_t>> sorted_;  ///< minor index, position
  std::array<bool, kSlots> may_be_{};
};

/// Calls use(major_index, minor_index, entry) for every entry, in storage order.
template <class Ends, class Indices, class Use>
void visit_compressed(const SparseState& state, const Ends* ends, const Indices* minor_indices,
                      const Use& use) {
  const std::int64_t length = state.minor_size();
  std::int64_t begin = ends[0];
  for (std::int64_t major_index = 0; major_index < state.major_size(); ++major_index) {
    const std::int64_t end = ends[major_index + 1];
    if (end < begin || end > state.nnz || ends[0] != 0) {
      throw base::corrupt(state.where)
          .part(state.major_name(), " ", major_index, ": entries")
          .expected("a range from ", major_index == 0 ? 0 : begin, " to at most ", state.nnz)
          .found("[", begin, ", ", end, ")");
    }
    for (std::int64_t entry = begin; entry < end; ++entry) {
      const std::int64_t minor_index = minor_indices[entry];
      if (minor_index < 0 || minor_index >= length) {
        throw_bad_minor_index(state, major_index, minor_index);
      }
      use(major_index, minor_index, entry);
    }
    begin = end;
  }
}

template <class Index, class Use>
void visit_coordinates(const SparseState& state, const Index* major_indices,
                       const Index* minor_indices, const Use& use) {
  for (std::int64_t entry = 0; entry < state.nnz; ++entry) {
    const std::int64_t major_index = major_indices[entry];
    const std::int64_t minor_index = minor_indices[entry];
    if (major_index < 0 || major_index >= state.major_size()) {
      throw base::corrupt(state.where)
          .part(state.major_name(), " of entry ", entry)
          .expected(index_bounds(state.major_size()))
          .found(major_index);
    }
    if (minor_index < 0 || minor_index >= state.minor_size()) {
      throw_bad_minor_index(state, major_index, minor_index);
    }
    use(major_index, minor_index, entry);
  }
}

template <class Use>
void visit(const SparseState& state, const Use& use) {
  const bool is_narrow = state.minor_indices.dtype() == DType::int32;
  if (state.layout == SparseLayout::coo) {
    if (is_narrow) {
      return visit_coordinates(state, state.major_indices.data<std::int32_t>(),
                               state.minor_indices.data<std::int32_t>(), use);
    }
    return visit_coordinates(state, state.major_indices.data<std::int64_t>(),
                             state.minor_indices.data<std::int64_t>(), use);
  }
  const auto with_ends = [&](const auto* ends) {
    if (is_narrow) {
      visit_compressed(state, ends, state.minor_indices.data<std::int32_t>(), use);
    } else {
      visit_compressed(state, ends, state.minor_indices.data<std::int64_t>(), use);
    }
  };
  if (state.ends.dtype() == DType::int32) return with_ends(state.ends.data<std::int32_t>());
  with_ends(state.ends.data<std::int64_t>());
}

SparseRows scatter_minor(const SparseState& state, const SelectedIndices& selected,
                         std::int64_t count, bool as_rows) {
  SparseRows made;
  made.num_rows = as_rows ? count : state.num_rows;
  made.num_cols = as_rows ? state.num_cols : count;
  const Shape shape = {made.num_rows, made.num_cols};
  const auto size_bytes = static_cast<std::size_t>(nbytes_of(state.values.dtype(), shape));
  made.values = Tensor(state.values.dtype(), shape, state.pool.take(size_bytes));
  if (size_bytes == 0) return made;
  std::byte* out = made.values.mutable_raw_data();
  std::memset(out, 0, size_bytes);
  const std::size_t size = state.values.itemsize();
  const std::byte* values = state.values.raw_data();
  visit(state, [&](std::int64_t major_index, std::int64_t minor_index, std::int64_t entry) {
    selected.for_each(minor_index, [&](std::int64_t position) {
      const std::int64_t at =
          as_rows ? position * made.num_cols + major_index : major_index * made.num_cols + position;
      std::memcpy(out + static_cast<std::size_t>(at) * size,
                  values + static_cast<std::size_t>(entry) * size, size);
    });
  });
  return made;
}

void copy_values(const SparseState& state, const std::vector<BatchEntry>& entries, std::byte* out) {
  const std::size_t size = state.values.itemsize();
  const std::byte* values = state.values.raw_data();
  for (const BatchEntry& entry : entries) {
    std::memcpy(out, values + static_cast<std::size_t>(entry.entry) * size, size);
    out += size;
  }
}

/// A tensor of int32 or int64, into which indices are written.
class IndexWriter {
 public:
  IndexWriter(DType dtype, Shape shape) : tensor_(Tensor::zeros(dtype, std::move(shape))) {}
  void set(std::int64_t at, std::int64_t value) {
    if (tensor_.dtype() == DType::int32) {
      tensor_.mutable_data<std::int32_t>()[at] = static_cast<std::int32_t>(value);
    } else {
      tensor_.mutable_data<std::int64_t>()[at] = value;
    }
  }
  Tensor& tensor() { return tensor_; }

 private:
  Tensor tensor_;
};

void assemble_padded(const SparseState& state, const std::vector<BatchEntry>& entries,
                     DType index_dtype, SparseRows& made) {
  Tensor lengths = Tensor::zeros(DType::int64, {made.num_rows});
  auto* counts = made.num_rows == 0 ? nullptr : lengths.mutable_data<std::int64_t>();
  std::int64_t longest = 0;
  for (const BatchEntry& entry : entries) longest = std::max(longest, ++counts[entry.row]);
  const Shape shape = {made.num_rows, longest};
  IndexWriter indices(index_dtype, shape);
  made.values = Tensor::zeros(state.values.dtype(), shape);
  const std::size_t size = state.values.itemsize();
  std::int64_t row = -1;
  std::int64_t column = 0;
  for (const BatchEntry& entry : entries) {
    column = entry.row == row ? column + 1 : 0;
    row = entry.row;
    const std::int64_t at = row * longest + column;
    indices.set(at, entry.column);
    std::memcpy(made.values.mutable_raw_data() + static_cast<std::size_t>(at) * size,
                state.values.raw_data() + static_cast<std::size_t>(entry.entry) * size, size);
  }
  made.indices = indices.tensor();
  made.lengths = std::move(lengths);
}

}  // namespace

void for_each_entry(const SparseState& state,
                    const std::function<void(std::int64_t major_index, std::int64_t minor_index,
                                             std::int64_t entry)>& use) {
  visit(state, use);
}

SparseRows assemble(const SparseState& state, std::vector<BatchEntry> entries,
                    std::int64_t num_rows, std::int64_t num_cols, RowsLayout layout) {
  const auto order = [](const BatchEntry& a, const BatchEntry& b) {
    return std::tie(a.row, a.column) < std::tie(b.row, b.column);
  };
  if (!std::is_sorted(entries.begin(), entries.end(), order)) {
    std::sort(entries.begin(), entries.end(), order);
  }
  SparseRows made;
  made.layout = layout;
  made.num_rows = num_rows;
  made.num_cols = num_cols;
  // Columns of the batch may be major indices, which may exceed int32 even if minor indices are
  // int32.
  constexpr std::int64_t kMaxNarrow = std::numeric_limits<std::int32_t>::max();
  const bool is_narrow = state.minor_indices.dtype() == DType::int32 && num_cols - 1 <= kMaxNarrow;
  if (layout == RowsLayout::padded) {
    assemble_padded(state, entries, is_narrow ? DType::int32 : DType::int64, made);
    return made;
  }
  const auto count = static_cast<std::int64_t>(entries.size());
  made.values = Tensor::zeros(state.values.dtype(), {count});
  copy_values(state, entries, made.values.mutable_raw_data());
  if (layout == RowsLayout::coo) {
    IndexWriter indices(DType::int64, {2, count});
    for (std::int64_t i = 0; i < count; ++i) {
      indices.set(i, entries[static_cast<std::size_t>(i)].row);
      indices.set(count + i, entries[static_cast<std::size_t>(i)].column);
    }
    made.indices = indices.tensor();
    return made;
  }
  const DType dtype = is_narrow && count <= kMaxNarrow ? DType::int32 : DType::int64;
  if (num_rows == std::numeric_limits<std::int64_t>::max()) {
    throw base::invalid_argument(state.where)
        .part("rows")
        .expected("fewer than 2^63 - 1 in csr")
        .found("as many");
  }
  IndexWriter ends(dtype, {num_rows + 1});
  IndexWriter indices(dtype, {count});
  std::int64_t row = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const BatchEntry& entry = entries[static_cast<std::size_t>(i)];
    while (row < entry.row) ends.set(++row, i);
    indices.set(i, entry.column);
  }
  while (row < num_rows) ends.set(++row, count);
  made.indices = indices.tensor();
  made.crow_indices = ends.tensor();
  return made;
}

SparseRows gather_minor(const SparseState& state, std::span<const std::int64_t> selected,
                        RowsLayout layout, bool as_rows) {
  require_sorted(state);
  const SelectedIndices minor_indices(selected);
  const auto count = static_cast<std::int64_t>(selected.size());
  if (layout == RowsLayout::dense) return scatter_minor(state, minor_indices, count, as_rows);
  // In the padded layout, each row of the tensors holds the entries of one requested index, even if
  // columns are requested.
  const bool by_selected = as_rows || layout == RowsLayout::padded;
  std::vector<BatchEntry> entries;
  visit(state, [&](std::int64_t major_index, std::int64_t minor_index, std::int64_t entry) {
    minor_indices.for_each(minor_index, [&](std::int64_t position) {
      entries.push_back(by_selected ? BatchEntry{position, major_index, entry}
                                    : BatchEntry{major_index, position, entry});
    });
  });
  const std::int64_t major_size = state.major_size();
  SparseRows made = by_selected ? assemble(state, std::move(entries), count, major_size, layout)
                                : assemble(state, std::move(entries), major_size, count, layout);
  if (!as_rows && by_selected) std::swap(made.num_rows, made.num_cols);
  return made;
}

}  // namespace tenfold

// Selects columns of a matrix stored by row, and rows of one stored by column. Reads all indices,
// and needs memory for the selected entries.

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
class Wanted {
 public:
  explicit Wanted(std::span<const std::int64_t> places) {
    sorted_.reserve(places.size());
    for (std::size_t i = 0; i < places.size(); ++i) {
      sorted_.emplace_back(places[i], static_cast<std::int64_t>(i));
      may_be_[slot(places[i])] = true;
    }
    std::sort(sorted_.begin(), sorted_.end());
  }

  /// Calls use(position) for each position at which `place` was requested.
  template <class Use>
  void for_each(std::int64_t place, const Use& use) const {
    // A small filter in L1 rejects most indices, which were not requested.
    if (!may_be_[slot(place)]) return;
    const auto lowest = std::pair(place, std::int64_t{0});
    for (auto found = std::lower_bound(sorted_.begin(), sorted_.end(), lowest);
         found != sorted_.end() && found->first == place; ++found) {
      use(found->second);
    }
  }

 private:
  static constexpr std::size_t kSlots = 1 << 14;
  static std::size_t slot(std::int64_t place) { return static_cast<std::size_t>(place) % kSlots; }
  std::vector<std::pair<std::int64_t, std::int64_t>> sorted_;  ///< minor index, position
  std::array<bool, kSlots> may_be_{};
};

/// Calls use(line, place, entry) for every entry, in storage order.
template <class Ends, class Places, class Use>
void visit_lines(const SparseState& state, const Ends* ends, const Places* places, const Use& use) {
  const std::int64_t length = state.line_length();
  std::int64_t begin = 0;
  for (std::int64_t line = 0; line < state.num_lines(); ++line) {
    const std::int64_t end = ends[line + 1];
    if (end < begin || end > state.nnz || ends[0] != 0) {
      throw base::corrupt(state.where)
          .part(state.line_name(), " ", line, ": entries")
          .expected("a range within ", state.nnz)
          .found("[", begin, ", ", end, ")");
    }
    for (std::int64_t entry = begin; entry < end; ++entry) {
      const std::int64_t place = places[entry];
      if (place < 0 || place >= length) throw_bad_place(state, line, place);
      use(line, place, entry);
    }
    begin = end;
  }
}

template <class Index, class Use>
void visit_coordinates(const SparseState& state, const Index* lines, const Index* places,
                       const Use& use) {
  for (std::int64_t entry = 0; entry < state.nnz; ++entry) {
    const std::int64_t line = lines[entry];
    const std::int64_t place = places[entry];
    if (line < 0 || line >= state.num_lines() || place < 0 || place >= state.line_length()) {
      throw_bad_place(state, line, place);
    }
    use(line, place, entry);
  }
}

template <class Use>
void visit(const SparseState& state, const Use& use) {
  const bool narrow_places = state.places.dtype() == DType::int32;
  if (state.layout == SparseLayout::coo) {
    if (narrow_places) {
      return visit_coordinates(state, state.lines.data<std::int32_t>(),
                               state.places.data<std::int32_t>(), use);
    }
    return visit_coordinates(state, state.lines.data<std::int64_t>(),
                             state.places.data<std::int64_t>(), use);
  }
  const auto with_ends = [&](const auto* ends) {
    if (narrow_places) {
      visit_lines(state, ends, state.places.data<std::int32_t>(), use);
    } else {
      visit_lines(state, ends, state.places.data<std::int64_t>(), use);
    }
  };
  if (state.ends.dtype() == DType::int32) return with_ends(state.ends.data<std::int32_t>());
  with_ends(state.ends.data<std::int64_t>());
}

SparseRows scatter_across(const SparseState& state, const Wanted& wanted, std::int64_t count,
                          bool as_rows) {
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
  visit(state, [&](std::int64_t line, std::int64_t place, std::int64_t entry) {
    wanted.for_each(place, [&](std::int64_t position) {
      const std::int64_t at =
          as_rows ? position * made.num_cols + line : line * made.num_cols + position;
      std::memcpy(out + static_cast<std::size_t>(at) * size,
                  values + static_cast<std::size_t>(entry) * size, size);
    });
  });
  return made;
}

void copy_values(const SparseState& state, const std::vector<PlacedEntry>& entries,
                 std::byte* out) {
  const std::size_t size = state.values.itemsize();
  const std::byte* values = state.values.raw_data();
  for (const PlacedEntry& entry : entries) {
    std::memcpy(out, values + static_cast<std::size_t>(entry.entry) * size, size);
    out += size;
  }
}

/// Writes indices as int32 or int64, like the matrix's own.
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

void assemble_padded(const SparseState& state, const std::vector<PlacedEntry>& entries,
                     SparseRows& made) {
  Tensor lengths = Tensor::zeros(DType::int64, {made.num_rows});
  auto* counts = made.num_rows == 0 ? nullptr : lengths.mutable_data<std::int64_t>();
  std::int64_t longest = 0;
  for (const PlacedEntry& entry : entries) longest = std::max(longest, ++counts[entry.row]);
  const Shape shape = {made.num_rows, longest};
  IndexWriter indices(state.places.dtype(), shape);
  made.values = Tensor::zeros(state.values.dtype(), shape);
  const std::size_t size = state.values.itemsize();
  std::int64_t row = -1;
  std::int64_t column = 0;
  for (const PlacedEntry& entry : entries) {
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

void for_each_entry(
    const SparseState& state,
    const std::function<void(std::int64_t line, std::int64_t place, std::int64_t entry)>& use) {
  visit(state, use);
}

SparseRows assemble(const SparseState& state, std::vector<PlacedEntry> entries,
                    std::int64_t num_rows, std::int64_t num_cols, RowsLayout layout) {
  const auto order = [](const PlacedEntry& a, const PlacedEntry& b) {
    return std::tie(a.row, a.column) < std::tie(b.row, b.column);
  };
  if (!std::is_sorted(entries.begin(), entries.end(), order)) {
    std::sort(entries.begin(), entries.end(), order);
  }
  SparseRows made;
  made.layout = layout;
  made.num_rows = num_rows;
  made.num_cols = num_cols;
  if (layout == RowsLayout::padded) {
    assemble_padded(state, entries, made);
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
  const bool is_narrow =
      state.places.dtype() == DType::int32 && count <= std::numeric_limits<std::int32_t>::max();
  const DType dtype = is_narrow ? DType::int32 : DType::int64;
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
    const PlacedEntry& entry = entries[static_cast<std::size_t>(i)];
    while (row < entry.row) ends.set(++row, i);
    indices.set(i, entry.column);
  }
  while (row < num_rows) ends.set(++row, count);
  made.indices = indices.tensor();
  made.crow_indices = ends.tensor();
  return made;
}

SparseRows gather_across(const SparseState& state, std::span<const std::int64_t> wanted,
                         RowsLayout layout, bool as_rows) {
  require_sorted(state);
  const Wanted places(wanted);
  const auto count = static_cast<std::int64_t>(wanted.size());
  if (layout == RowsLayout::dense) return scatter_across(state, places, count, as_rows);
  // In a padded batch the requested indices are always the rows of the result.
  const bool by_wanted = as_rows || layout == RowsLayout::padded;
  std::vector<PlacedEntry> entries;
  visit(state, [&](std::int64_t line, std::int64_t place, std::int64_t entry) {
    places.for_each(place, [&](std::int64_t position) {
      entries.push_back(by_wanted ? PlacedEntry{position, line, entry}
                                  : PlacedEntry{line, position, entry});
    });
  });
  const std::int64_t num_lines = state.num_lines();
  SparseRows made = by_wanted ? assemble(state, std::move(entries), count, num_lines, layout)
                              : assemble(state, std::move(entries), num_lines, count, layout);
  if (!as_rows && by_wanted) std::swap(made.num_rows, made.num_cols);
  return made;
}

}  // namespace tenfold

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <utility>

#include "os/paging.hpp"
#include "stores/dict_state.hpp"

namespace tenfold {
namespace {

/// Keys whose cache misses overlap. More of them help no more, as a core waits for a few tens of
/// lines at a time.
constexpr std::size_t kGroup = 32;

/// The search for some keys of one type, in steps that are made for all of them.
template <class Key>
class Search {
 public:
  Search(const DictState& state, std::span<const Key> keys)
      : stored_(state.keys), index_(*state.index), keys_(keys) {}

  bool saw_newer() const noexcept { return saw_newer_; }

  void run(std::span<std::int64_t> rows) {
    for (std::size_t begin = 0; begin < keys_.size(); begin += kGroup) {
      const std::size_t count = std::min(kGroup, keys_.size() - begin);
      run_group(keys_.subspan(begin, count), rows.subspan(begin, count));
    }
  }

 private:
  void run_group(std::span<const Key> keys, std::span<std::int64_t> rows) {
    std::array<std::uint64_t, kGroup> hashes;
    std::array<DictIndex::Cursor, kGroup> cursors;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      hashes[i] = dict_hash(keys[i], index_.seed());
      index_.prefetch(hashes[i]);
    }
    for (std::size_t i = 0; i < keys.size(); ++i) {
      cursors[i] = index_.find(hashes[i]);
      rows[i] = next(cursors[i]);
      if (rows[i] >= 0) prefetch_ends(rows[i]);
    }
    if constexpr (std::is_same_v<Key, std::string_view>) {
      for (const std::int64_t row : rows) {
        if (row >= 0) prefetch_key(row);
      }
    }
    for (std::size_t i = 0; i < keys.size(); ++i) {
      while (rows[i] >= 0 && !stored_.is(rows[i], keys[i])) rows[i] = next(cursors[i]);
    }
  }

  /// The next committed row that the index gives for the key, or -1.
  std::int64_t next(DictIndex::Cursor& cursor) {
    while (const auto row = index_.next(cursor)) {
      if (*row < static_cast<std::uint64_t>(stored_.num_rows)) {
        return static_cast<std::int64_t>(*row);
      }
      saw_newer_ = true;
    }
    return -1;
  }

  void prefetch_ends(std::int64_t row) const {
    if constexpr (std::is_same_v<Key, std::string_view>) {
      __builtin_prefetch(stored_.ends + row);
      __builtin_prefetch(stored_.ends + std::max<std::int64_t>(row, 1) - 1);
    } else {
      __builtin_prefetch(stored_.values + row * 8);
    }
  }
  void prefetch_key(std::int64_t row) const {
    // Unsigned, because ends of a damaged file may be any number: an address that makes no sense
    // does no harm, for it is not read.
    const auto base = reinterpret_cast<std::uintptr_t>(stored_.values);
    const std::uintptr_t begin = row == 0 ? 0 : static_cast<std::uintptr_t>(stored_.ends[row - 1]);
    const auto end = static_cast<std::uintptr_t>(stored_.ends[row]);
    __builtin_prefetch(reinterpret_cast<const void*>(base + begin));
    __builtin_prefetch(reinterpret_cast<const void*>(base + end - 1));
  }

  const StoredKeys& stored_;
  const DictIndex& index_;
  std::span<const Key> keys_;
  bool saw_newer_ = false;
};

template <class Key>
DictLookup search(const DictState& state, std::span<const Key> keys, std::span<std::int64_t> rows) {
  if (state.keys.is_text() != std::is_same_v<Key, std::string_view>) {
    std::ranges::fill(rows, -1);
    return {};
  }
  Search<Key> work(state, keys);
  work.run(rows);
  return {work.saw_newer()};
}

std::size_t row_bytes_of(const Tensor& tensor) {
  return tensor.numel() == 0 ? 0
                             : static_cast<std::size_t>(tensor.nbytes()) /
                                   static_cast<std::size_t>(tensor.shape()[0]);
}

/// Rows of `tensor` at the places where `rows` is not -1, one after the other; zeros elsewhere.
Tensor spread(const Tensor& tensor, std::span<const std::int64_t> rows) {
  Shape shape = tensor.shape();
  shape[0] = static_cast<std::int64_t>(rows.size());
  Tensor made = Tensor::zeros(tensor.dtype(), std::move(shape));
  const std::size_t row_bytes = row_bytes_of(tensor);
  if (row_bytes == 0) return made;
  const std::byte* from = tensor.raw_data();
  std::byte* into = made.raw_data();
  for (const std::int64_t row : rows) {
    if (row >= 0) {
      std::memcpy(into, from, row_bytes);
      from += row_bytes;
    }
    into += row_bytes;
  }
  return made;
}

/// Offsets of rows of which those that are -1 have nothing.
Tensor spread_offsets(const Tensor& offsets, std::span<const std::int64_t> rows) {
  Tensor made = Tensor::zeros(DType::int64, {static_cast<std::int64_t>(rows.size()) + 1});
  const auto* from = offsets.data<std::int64_t>();
  auto* into = made.mutable_data<std::int64_t>();
  for (const std::int64_t row : rows) {
    if (row >= 0) ++from;
    *++into = *from;
  }
  return made;
}

}  // namespace

DictLookup find_rows(const DictState& state, std::span<const std::int64_t> keys,
                     std::span<std::int64_t> rows) {
  return search(state, keys, rows);
}

DictLookup find_rows(const DictState& state, std::span<const std::string_view> keys,
                     std::span<std::int64_t> rows) {
  return search(state, keys, rows);
}

DictLookup find_rows(const DictState& state, const DictKeys& keys, std::span<std::int64_t> rows) {
  return std::visit([&](const auto& some) { return search(state, some, rows); }, keys);
}

Batch gather_found(const DatasetState& values, std::span<const std::int64_t> rows) {
  std::vector<std::int64_t> found;
  found.reserve(rows.size());
  for (const std::int64_t row : rows) {
    if (row >= 0) found.push_back(row);
  }
  Batch batch = gather(values, found, {});
  if (found.size() == rows.size()) return batch;
  std::vector<BatchColumn> columns = batch.columns();
  for (BatchColumn& column : columns) {
    if (column.column.has_ends()) {
      column.offsets = spread_offsets(column.offsets, rows);
    } else {
      column.values = spread(column.values, rows);
    }
    if (column.valid.dtype() == DType::bool_) column.valid = spread(column.valid, rows);
  }
  return {static_cast<std::int64_t>(rows.size()), std::move(columns)};
}

}  // namespace tenfold

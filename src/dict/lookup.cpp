#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <iterator>
#include <mutex>
#include <utility>

#include "base/prefetch.hpp"
#include "dataset/fixed_rows.hpp"
#include "dict/state.hpp"
#include "os/thread/helper_thread.hpp"
#include "os/thread/thread_pool.hpp"

namespace tenfold {
namespace {

constexpr std::uint64_t kLineBytes = 64;

/// Prefetches the values of a row: the first four cache lines of each fixed-size value, and the end
/// offset of each variable-length value.
void prefetch_values(const DictState& state, std::int64_t row) {
  constexpr std::uint64_t kMaxBytes = 4 * kLineBytes;
  const auto place = static_cast<std::uint64_t>(row);
  for (const StoredColumn* column : state.values->parts[0].columns) {
    if (column->ends.numel() > 0) {
      base::prefetch(column->ends.raw_data() + place * sizeof(std::int64_t));
      continue;
    }
    const std::byte* values = column->values.raw_data() + place * column->stride_bytes;
    for (std::uint64_t at = 0; at < std::min(column->row_bytes, kMaxBytes); at += kLineBytes) {
      base::prefetch(values + at);
    }
  }
}

/// The number of keys in a group; see Search.
constexpr std::size_t kAtOnce = 128;

/// Copies the values of `rows` to consecutive rows of `into`, from `first` on, and writes zeros for
/// missing rows (-1). So that one call prefetches and copies all rows, an existing row is first
/// copied in place of each missing row; zeros then overwrite this copy.
void copy_found(const FixedRows& into, std::span<const std::int64_t> rows, std::size_t first) {
  const auto is_there = [](std::int64_t row) { return row >= 0; };
  const auto some = std::ranges::find_if(rows, is_there);
  if (some == rows.end()) return into.clear(first, rows.size());
  std::array<std::int64_t, kAtOnce> filled;
  const auto end =
      std::ranges::replace_copy_if(rows, filled.begin(), std::not_fn(is_there), *some).out;
  into.copy({}, std::span(filled.begin(), end), first);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!is_there(rows[i])) into.clear(first + i, 1);
  }
}

/// Looks up keys of one type. Each step runs for a group of keys before the next step, so that the
/// memory that a step prefetches has arrived when the next step reads it. Prefetches go to L2,
/// which allows more outstanding cache lines than L1; L1 was faster only when keys were looked up
/// one at a time.
template <class Key>
class Search {
 public:
  Search(const DictState& state, std::span<const Key> keys, std::span<std::int64_t> rows)
      : state_(state), stored_(state.keys), index_(*state.index), keys_(keys), rows_(rows) {}

  const std::vector<NewerRow>& newer() const noexcept { return newer_; }

  /// Looks up the keys [first, end), and copies their values to `into` unless it is null.
  /// Prefetching values before copy_found() gains nothing, because the core already has the maximum
  /// number of outstanding loads.
  void run(std::size_t first, std::size_t end, const FixedRows* into) {
    if (end - first == 1 && into == nullptr) return run_single(first);
    for (; first < end; first += kAtOnce) run_some(first, std::min(first + kAtOnce, end), into);
  }

 private:
  static constexpr bool kIsText = std::is_same_v<Key, std::string_view>;

  /// The lookup of a single key is a chain of dependent loads. The value is prefetched as soon as
  /// there is a candidate row, so that it arrives while the keys are compared.
  void run_single(std::size_t i) {
    hash(i);
    probe_index(i);
    if (rows_[i] >= 0) prefetch_values(state_, rows_[i]);
    compare(i);
  }

  void run_some(std::size_t first, std::size_t end, const FixedRows* into) {
    for (std::size_t i = first; i < end; ++i) hash(i);
    for (std::size_t i = first; i < end; ++i) probe_index(i);
    if constexpr (kIsText) {
      for (std::size_t i = first; i < end; ++i) prefetch_text(rows_[i]);
    }
    for (std::size_t i = first; i < end; ++i) compare(i);
    if (into != nullptr) copy_found(*into, rows_.subspan(first, end - first), first);
  }

  void hash(std::size_t i) {
    hashes_[i % kAtOnce] = dict_hash(keys_[i], index_.seed());
    index_.prefetch(hashes_[i % kAtOnce]);
  }

  void probe_index(std::size_t i) {
    DictIndex::Cursor& cursor = cursors_[i % kAtOnce];
    cursor = index_.find(hashes_[i % kAtOnce]);
    rows_[i] = next(cursor, i);
    if (rows_[i] >= 0) stored_.prefetch_place(rows_[i]);
  }

  void prefetch_text(std::int64_t row) const {
    if (row >= 0) stored_.prefetch_text(row);
  }

  void compare(std::size_t i) {
    while (rows_[i] >= 0 && !stored_.is(rows_[i], keys_[i])) {
      rows_[i] = next(cursors_[i % kAtOnce], i);
    }
  }

  /// Returns the next candidate row for key `i` that the state contains, or -1. Appends candidates
  /// that are newer than the state to `newer_`.
  std::int64_t next(DictIndex::Cursor& cursor, std::size_t i) {
    while (const auto row = index_.next(cursor)) {
      if (*row < static_cast<std::uint64_t>(stored_.num_rows)) {
        return static_cast<std::int64_t>(*row);
      }
      // A key has one slot. In a damaged index any number of slots may match, so the list is
      // limited.
      const bool is_likely = newer_.size() < 2 * rows_.size() + kDictSlots;
      if (is_likely) newer_.push_back({i, static_cast<std::int64_t>(*row)});
    }
    return -1;
  }

  const DictState& state_;
  const StoredKeys& stored_;
  const DictIndex& index_;
  std::span<const Key> keys_;
  std::span<std::int64_t> rows_;
  std::array<std::uint64_t, kAtOnce> hashes_;
  std::array<DictIndex::Cursor, kAtOnce> cursors_;
  std::vector<NewerRow> newer_;
};

/// The number of threads for `count` keys. Each of several threads gets at least 8192 keys, so that
/// the work of a thread takes longer than waking it. 8192 keys take about 0.1 ms if they are
/// integer keys of a small dictionary, and longer for strings and large dictionaries.
int num_threads_for_keys(std::size_t count) {
  constexpr std::size_t kMinKeysAThread = 8192;
  const auto worth = static_cast<int>(std::min<std::size_t>(count / kMinKeysAThread, 1024));
  return worth <= 1 ? 1 : std::min(worth, os::num_threads_for(0));
}

/// Looks up keys, with several threads if there are many. If `into` is not null, each thread copies
/// the values of the keys that it looked up.
template <class Key>
DictLookup search(const DictState& state, std::span<const Key> keys, std::span<std::int64_t> rows,
                  const FixedRows* into) {
  if (state.keys.is_text() != std::is_same_v<Key, std::string_view>) {
    std::ranges::fill(rows, -1);
    if (into != nullptr) into->clear(0, rows.size());
    return {};
  }
  DictLookup lookup;
  std::mutex mutex;
  const auto search_part = [&](std::size_t begin, std::size_t end) {
    Search<Key> work(state, keys, rows);
    work.run(begin, end, into);
    if (work.newer().empty()) return;
    const std::lock_guard lock(mutex);
    for (const NewerRow& newer : work.newer()) {
      if (rows[newer.key] < 0) lookup.newer.push_back(newer);
    }
  };
  // The number of keys that a thread takes at a time. A batch of 256 keys has four such ranges, so
  // that a thread that starts late gets fewer of them.
  constexpr std::size_t kSharedKeys = 64;
  const int num_threads = num_threads_for_keys(keys.size());
  const auto parts = static_cast<std::size_t>(num_threads);
  if (parts == 1) {
    os::run_with_helper(keys.size(), kSharedKeys, search_part);
  } else {
    os::parallel_for(parts, num_threads, [&](std::size_t part) {
      search_part(keys.size() * part / parts, keys.size() * (part + 1) / parts);
    });
  }
  return lookup;
}

/// True if all columns have values of fixed size, and the values of a group of keys fit in L2.
bool are_short(const DatasetState& values) {
  constexpr std::uint64_t kMaxBytes = 2048;
  std::uint64_t row_bytes = 0;
  for (std::size_t i = 0; i < values.schema.size(); ++i) {
    if (values.schema.columns()[i].has_ends()) return false;
    row_bytes += values.parts[0].columns[i]->row_bytes;
  }
  return row_bytes <= kMaxBytes;
}

std::size_t row_bytes_of(const Tensor& tensor) {
  return tensor.numel() == 0 ? 0
                             : static_cast<std::size_t>(tensor.nbytes()) /
                                   static_cast<std::size_t>(tensor.shape()[0]);
}

/// Scatters the rows of `tensor` to the positions where `rows` is not -1; zeros elsewhere.
Tensor spread(const Tensor& tensor, std::span<const std::int64_t> rows) {
  Shape shape = tensor.shape();
  shape[0] = static_cast<std::int64_t>(rows.size());
  Tensor made = Tensor::zeros(tensor.dtype(), std::move(shape));
  const std::size_t row_bytes = row_bytes_of(tensor);
  if (row_bytes == 0) return made;
  const std::byte* from = tensor.raw_data();
  std::byte* into = made.mutable_raw_data();
  for (const std::int64_t row : rows) {
    if (row >= 0) {
      std::memcpy(into, from, row_bytes);
      from += row_bytes;
    }
    into += row_bytes;
  }
  return made;
}

/// Inserts empty rows into `offsets` where `rows` is -1.
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
  return search(state, keys, rows, nullptr);
}

DictLookup find_rows(const DictState& state, std::span<const std::string_view> keys,
                     std::span<std::int64_t> rows) {
  return search(state, keys, rows, nullptr);
}

DictLookup find_rows(const DictState& state, const DictKeys& keys, std::span<std::int64_t> rows) {
  return std::visit([&](const auto& some) { return search(state, some, rows, nullptr); },
                    keys.views());
}

DictLookup find_values(const DictState& state, const DictKeys& keys, std::span<std::int64_t> rows,
                       std::optional<Batch>& values) {
  const DatasetState& from = *state.values;
  if (!are_short(from)) {
    const DictLookup lookup = find_rows(state, keys, rows);
    values = gather_found(from, rows);
    return lookup;
  }
  std::vector<BatchColumn> columns = batch_columns_of(from);
  const FixedRows into(from, rows.size(), columns);
  const DictLookup lookup =
      std::visit([&](const auto& some) { return search(state, some, rows, &into); }, keys.views());
  values.emplace(static_cast<std::int64_t>(rows.size()), std::move(columns));
  return lookup;
}

void take_newer(const DictState& state, const DictLookup& lookup, const DictKeys& keys,
                std::span<std::int64_t> rows) {
  std::visit(
      [&](const auto& some) {
        for (const NewerRow& newer : lookup.newer) {
          const bool is_known = newer.row < state.keys.num_rows;
          if (is_known && state.keys.is(newer.row, some[newer.key])) rows[newer.key] = newer.row;
        }
      },
      keys.views());
}

Batch gather_found(const DatasetState& values, std::span<const std::int64_t> rows) {
  const BatchOptions options{.num_threads = num_threads_for_keys(rows.size())};
  if (std::ranges::find(rows, -1) == rows.end()) return gather(values, rows, options);
  std::vector<std::int64_t> found;
  found.reserve(rows.size());
  std::ranges::copy_if(rows, std::back_inserter(found), [](std::int64_t row) { return row >= 0; });
  const Batch batch = gather(values, found, options);
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

#include "dict/paging.hpp"

#include <algorithm>
#include <utility>

#include "os/memory/advice.hpp"

namespace tenfold {
namespace {

constexpr std::int64_t kPageBytes = 4096;

/// The number of ranges of a batch that are sampled to check whether prefetching is necessary.
/// Prefetching a page that is already cached takes as long as several lookups in cached memory.
constexpr std::size_t kSampledRanges = 16;

/// A sample of `all`, evenly spaced.
template <class T>
std::vector<T> sample_of(std::span<const T> all) {
  const std::size_t count = std::min(kSampledRanges, all.size());
  std::vector<T> sample;
  for (std::size_t i = 0; i < count; ++i) sample.push_back(all[i * all.size() / count]);
  return sample;
}

/// Prefetches the ranges. Returns false, and prefetches nothing, if all sampled ranges are cached.
bool prefetch_missing(std::span<const std::span<const std::byte>> ranges) {
  if (std::ranges::all_of(sample_of(ranges), os::is_resident)) return false;
  os::will_need(ranges);
  return true;
}

}  // namespace

DictPaging::DictPaging(std::shared_ptr<const DictState> state)
    : state_(std::move(state)), values_(*state_->values, true) {
  const StoredKeys& keys = state_->keys;
  const auto add = [&](std::span<const std::byte> bytes) {
    if (bytes.size() >= Residency::kMinBytes) sources_.push_back(bytes);
  };
  add(state_->index->bytes());
  add({keys.values, static_cast<std::size_t>(keys.num_bytes)});
  if (keys.ends != nullptr) {
    add(std::as_bytes(std::span(keys.ends, static_cast<std::size_t>(keys.num_rows))));
  }
  needed_ = !std::ranges::all_of(sources_, [](std::span<const std::byte> bytes) {
    const auto num_pages = static_cast<std::int64_t>(bytes.size()) / kPageBytes;
    return Residency::is_sample_cached(bytes, kPageBytes, num_pages, 0, Residency::kSamplesInAll);
  });
  if (!needed_) return;
  for (const auto& source : sources_) os::expect_random_access(source, true);
}

DictPaging::~DictPaging() {
  if (!needed_) return;
  for (const auto& source : sources_) os::expect_random_access(source, false);
}

bool DictPaging::prefetch_index(std::span<const std::uint64_t> hashes) const {
  Ranges ranges;
  for (const std::uint64_t hash : hashes) ranges.push_back(state_->index->home_bytes(hash));
  return prefetch_missing(ranges);
}

/// Returns the first candidate row of each key. Omits keys without a candidate, and keys whose
/// first candidate is newer than the state.
std::vector<std::int64_t> DictPaging::candidates(std::span<const std::uint64_t> hashes) const {
  const DictIndex& index = *state_->index;
  std::vector<std::int64_t> rows;
  for (const std::uint64_t hash : hashes) {
    DictIndex::Cursor cursor = index.find(hash);
    const auto row = index.next(cursor);
    const bool is_there = row && *row < static_cast<std::uint64_t>(state_->keys.num_rows);
    if (is_there) rows.push_back(static_cast<std::int64_t>(*row));
  }
  return rows;
}

bool DictPaging::prefetch_values(std::span<const std::int64_t> rows) {
  if (!values_.is_needed() || values_.holds(sample_of(rows))) return false;
  values_.prefetch(rows, 0);
  return true;
}

bool DictPaging::prefetch_keys(std::span<const std::int64_t> rows) const {
  const StoredKeys& keys = state_->keys;
  const std::span values(keys.values, static_cast<std::size_t>(keys.num_bytes));
  Ranges ranges;
  if (!keys.is_text()) {
    for (const std::int64_t row : rows) {
      ranges.push_back(values.subspan(static_cast<std::size_t>(row) * 8, 8));
    }
    return prefetch_missing(ranges);
  }
  const auto ends = std::as_bytes(std::span(keys.ends, static_cast<std::size_t>(keys.num_rows)));
  for (const std::int64_t row : rows) {
    const auto first = static_cast<std::size_t>(std::max<std::int64_t>(row, 1) - 1);
    ranges.push_back(ends.subspan(first * 8, row > 0 ? 16 : 8));
  }
  const bool any_end = prefetch_missing(ranges);
  ranges.clear();
  for (const std::int64_t row : rows) ranges.push_back(std::as_bytes(std::span(keys.text(row))));
  return prefetch_missing(ranges) || any_end;
}

bool DictPaging::prefetch(const DictKeys& keys) {
  if (state_->keys.is_text() ==
      std::holds_alternative<std::span<const std::int64_t>>(keys.views())) {
    return false;
  }
  std::vector<std::uint64_t> hashes;
  std::visit(
      [&](const auto& some) {
        for (const auto& key : some) hashes.push_back(dict_hash(key, state_->index->seed()));
      },
      keys.views());
  const bool any_slot = prefetch_index(hashes);
  const std::vector<std::int64_t> rows = candidates(hashes);
  const bool any_value = prefetch_values(rows);
  const bool any_key = prefetch_keys(rows);
  // prefetch_values() has prefetched stage 0: fixed-size values, and the end offsets of
  // variable-length values. The later stages are the contents of variable-length values.
  for (int stage = 1; any_value && stage < values_.num_stages(); ++stage)
    values_.prefetch(rows, stage);
  return any_key || any_value || any_slot;
}

}  // namespace tenfold

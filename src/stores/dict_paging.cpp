#include "stores/dict_paging.hpp"

#include <algorithm>
#include <utility>

#include <tenfold/permutation.hpp>

#include "os/mapping.hpp"
#include "os/paging.hpp"

namespace tenfold {
namespace {

/// Pages looked at of each part: if one in a hundred is missing, half of all looks find it.
constexpr std::int64_t kSampledPages = 64;
constexpr std::int64_t kPageBytes = 4096;
/// What is smaller is brought into memory by the first keys, faster than by asking.
constexpr std::size_t kMinBytes = std::size_t{1} << 20;

bool looks_resident(std::span<const std::byte> bytes) {
  const auto num_pages = static_cast<std::int64_t>(bytes.size()) / kPageBytes;
  const Permutation sample(num_pages, 1);
  for (std::int64_t i = 0; i < std::min(kSampledPages, num_pages); ++i) {
    const auto offset = static_cast<std::size_t>(sample[i] * kPageBytes);
    if (!os::is_resident(bytes.subspan(offset, 1))) return false;
  }
  return true;
}

}  // namespace

DictPaging::DictPaging(std::shared_ptr<const DictState> state)
    : state_(std::move(state)), values_(*state_->values, true) {
  const StoredKeys& keys = state_->keys;
  const auto add = [&](std::span<const std::byte> bytes) {
    if (bytes.size() >= kMinBytes) sources_.push_back(bytes);
  };
  add(state_->index->bytes());
  add({keys.values, static_cast<std::size_t>(keys.num_bytes)});
  if (keys.ends != nullptr) {
    add(std::as_bytes(std::span(keys.ends, static_cast<std::size_t>(keys.num_rows))));
  }
  needed_ = !std::ranges::all_of(sources_, looks_resident);
  if (!needed_) return;
  for (const auto& source : sources_) os::expect_random_access(source, true);
}

DictPaging::~DictPaging() {
  if (!needed_) return;
  for (const auto& source : sources_) os::expect_random_access(source, false);
}

/// The row of each key by the index alone, -1 for none.
std::vector<std::int64_t> DictPaging::candidates(const DictKeys& keys) const {
  const DictIndex& index = *state_->index;
  std::vector<std::uint64_t> hashes;
  std::visit(
      [&](const auto& some) {
        for (const auto& key : some) hashes.push_back(dict_hash(key, index.seed()));
      },
      keys);
  Ranges ranges;
  for (const std::uint64_t hash : hashes) ranges.push_back(index.home_bytes(hash));
  os::will_need(ranges);
  std::vector<std::int64_t> rows;
  for (const std::uint64_t hash : hashes) {
    DictIndex::Cursor cursor = index.find(hash);
    const auto row = index.next(cursor);
    const bool is_there = row && *row < static_cast<std::uint64_t>(state_->keys.num_rows);
    rows.push_back(is_there ? static_cast<std::int64_t>(*row) : -1);
  }
  return rows;
}

void DictPaging::ask_for_keys(std::span<const std::int64_t> rows) const {
  const StoredKeys& keys = state_->keys;
  const std::span values(keys.values, static_cast<std::size_t>(keys.num_bytes));
  Ranges ranges;
  if (!keys.is_text()) {
    for (const std::int64_t row : rows) {
      ranges.push_back(values.subspan(static_cast<std::size_t>(row) * 8, 8));
    }
    os::will_need(ranges);
    return;
  }
  const auto ends = std::as_bytes(std::span(keys.ends, static_cast<std::size_t>(keys.num_rows)));
  for (const std::int64_t row : rows) {
    const auto first = static_cast<std::size_t>(std::max<std::int64_t>(row, 1) - 1);
    ranges.push_back(ends.subspan(first * 8, row > 0 ? 16 : 8));
  }
  os::will_need(ranges);
  ranges.clear();
  for (const std::int64_t row : rows) ranges.push_back(std::as_bytes(std::span(keys.text(row))));
  os::will_need(ranges);
}

void DictPaging::ask(const DictKeys& keys) {
  if (state_->keys.is_text() == std::holds_alternative<std::span<const std::int64_t>>(keys)) return;
  std::vector<std::int64_t> rows = candidates(keys);
  std::erase(rows, -1);
  if (values_.is_needed()) values_.ask(rows, 0);
  ask_for_keys(rows);
  if (!values_.is_needed()) return;
  for (int stage = 1; stage < values_.num_stages(); ++stage) values_.ask(rows, stage);
}

}  // namespace tenfold

#include "dict/walk.hpp"

#include <algorithm>
#include <cerrno>
#include <numeric>
#include <string_view>
#include <utility>

#include <tenfold/error.hpp>

#include "dataset/dataset_state.hpp"

namespace tenfold {
namespace {

constexpr std::int64_t kWalkedRows = 1024;

}  // namespace

DictWalk::DictWalk(std::shared_ptr<const DictState> begun, Find find)
    : begun_(std::move(begun)),
      find_(std::move(find)),
      done_(0, Hash{&begun_->keys, random_dict_seed()}, Same{&begun_->keys}),
      num_settled_(static_cast<std::int64_t>(
          begun_->index->num_settled(static_cast<std::uint64_t>(keys().num_rows)))),
      unsettled_(done_) {
  for (std::int64_t row = num_settled_; row < keys().num_rows; ++row) unsettled_.insert(row);
}

DictWalk::Block DictWalk::next() {
  Block block;
  while (block.places.empty() && next_ < keys().num_rows) {
    const std::int64_t begin = next_;
    next_ = std::min(keys().num_rows, begin + kWalkedRows);
    if (begun_->num_dead == 0) {
      block.places.resize(static_cast<std::size_t>(next_ - begin));
      std::iota(block.places.begin(), block.places.end(), begin);
      block.rows = block.places;
      block.state = begun_;
      break;
    }
    FoundKeys found = find_keys(begin, next_);
    for (std::int64_t row = begin; row < next_; ++row) {
      const auto i = static_cast<std::size_t>(row - begin);
      if (!is_first(row, found.rows[i])) continue;
      block.places.push_back(row);
      block.rows.push_back(found.values.rows[i]);
    }
    block.state = std::move(found.values.state);
  }
  return block;
}

DictWalk::FoundKeys DictWalk::find_keys(std::int64_t begin, std::int64_t end) const {
  std::vector<std::string_view> texts;
  std::vector<std::int64_t> numbers;
  for (std::int64_t row = begin; row < end; ++row) {
    if (keys().is_text()) {
      texts.push_back(keys().text(row));
    } else {
      numbers.push_back(keys().number(row));
    }
  }
  if (keys().is_text()) return find_keys(std::span<const std::string_view>(texts));
  return find_keys(std::span<const std::int64_t>(numbers));
}

DictWalk::FoundKeys DictWalk::find_keys(const DictKeys& keys) const {
  FoundKeys found;
  found.values = find_(keys);
  found.rows = found.values.rows;
  if (found.values.state->rows->origin == begun_->rows->origin) return found;
  // The dictionary was replaced, so its rows have other indices: find the keys in the old index,
  // too. A slot of the old index may point to a row that was added after the start.
  const DictLookup lookup = find_rows(*begun_, keys, found.rows);
  for (const NewerRow& newer : lookup.newer) {
    if (found.rows[newer.key] < 0) found.rows[newer.key] = newer.row;
  }
  // compact() keeps all keys. If keys are missing, another dictionary was saved at the path.
  if (std::ranges::any_of(found.values.rows, [](std::int64_t row) { return row < 0; })) {
    throw Error::io(ESTALE, begun_->keys.where.path)
        .expected("the dictionary of which the keys are iterated")
        .found("another dictionary, without some of these keys")
        .remedy("start the iteration again");
  }
  return found;
}

bool DictWalk::is_first(std::int64_t row, std::int64_t newest) {
  // If the lookup found an earlier row, `row` belongs to the last commit, and the key's slot does
  // not point to it yet. If it found none, the index is damaged.
  if (newest < row) return false;
  const bool is_last = newest == row && (row >= num_settled_ || !unsettled_.contains(row));
  if (is_last) return done_.erase(row) == 0;
  return done_.insert(row).second;
}

}  // namespace tenfold

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "dict/state.hpp"
#include "formats/shared/problem.hpp"

namespace tenfold {
namespace {

/// The number of rows that are looked up at a time.
constexpr std::int64_t kCheckedRows = 1024;
/// Maximum number of reported keys that the lookup does not find at their row.
constexpr std::size_t kMaxProblems = 10;

/// Result of a lookup that found the key in no row of the state, but found a slot, perhaps of
/// another key, that points to a row newer than the state.
constexpr std::int64_t kFoundInNewerRow = -2;

/// Looks up the key of each row in [begin, end), and calls use(row, found). `found` is the row that
/// the lookup found, kFoundInNewerRow, or -1 if the key is missing.
template <class Use>
void for_each_found(const DictState& state, std::int64_t begin, std::int64_t end, const Use& use) {
  std::vector<std::string_view> texts;
  std::vector<std::int64_t> numbers;
  std::vector<std::int64_t> found;
  for (; begin < end; begin += kCheckedRows) {
    const std::int64_t stop = std::min(end, begin + kCheckedRows);
    found.resize(static_cast<std::size_t>(stop - begin));
    texts.clear();
    numbers.clear();
    for (std::int64_t row = begin; row < stop; ++row) {
      if (state.keys.is_text()) {
        texts.push_back(state.keys.text(row));
      } else {
        numbers.push_back(state.keys.number(row));
      }
    }
    const DictLookup lookup =
        state.keys.is_text() ? find_rows(state, std::span<const std::string_view>(texts), found)
                             : find_rows(state, std::span<const std::int64_t>(numbers), found);
    for (const NewerRow& newer : lookup.newer) found[newer.key] = kFoundInNewerRow;
    for (std::int64_t row = begin; row < stop; ++row) {
      use(row, found[static_cast<std::size_t>(row - begin)]);
    }
  }
}

/// Counts the slots that point to rows of `state`. Slots of newer rows are valid, but not counted.
std::int64_t count_slots(const DictState& state) {
  const auto num_rows = static_cast<std::uint64_t>(state.keys.num_rows);
  std::int64_t count = 0;
  for (std::uint64_t i = 0; i < state.index->num_positions(); ++i) {
    const std::uint64_t slot = state.index->load(i);
    if (slot != 0 && dict_row(slot) < num_rows) ++count;
  }
  return count;
}

/// Values that show whether a writer changed slots of committed rows. A writer changes at least one
/// of these values before it changes such slots, and again afterwards. So no such slot changed
/// during a check if two conditions hold:
/// - The values are the same before and after the check.
/// - When the check began, is_settled was true, and no rows newer than the state were committed.
struct Moment {
  std::int64_t num_rows;
  std::array<std::uint64_t, 3> words;
  bool is_settled;  // the slots of all committed rows are written

  static Moment of(const DictState& state) {
    const DictIndex& index = *state.index;
    const std::array<std::uint64_t, 3> words = {index.word(DictWord::writer),
                                                index.word(DictWord::num_rows_a),
                                                index.word(DictWord::num_rows_b)};
    const auto count = static_cast<std::uint64_t>(state.keys.num_rows);
    return {num_rows_now(state), words, index.num_settled(count) == count};
  }
  bool operator==(const Moment&) const = default;
};

}  // namespace

std::vector<Problem> check_dict(const DictState& state) {
  std::vector<Problem> problems;
  const auto add = [&](const Error& error) {
    problems.push_back(detail::formats::problem_of(error, state.keys.where.at("keys")));
  };
  const auto corrupt = [&](const std::string& part) {
    return base::corrupt(state.keys.where.at(part));
  };
  try {
    const Moment begin = Moment::of(state);
    const auto is_open = [&] { return state.index->word(DictWord::writer) != 0; };
    std::int64_t num_live = 0;
    for_each_found(state, 0, state.keys.num_rows, [&](std::int64_t row, std::int64_t found) {
      // The index points to the last row of a key. So finding a row after `row` is correct, and
      // finding a row before it is an error.
      if (found == row) ++num_live;
      if (found >= row || problems.size() >= kMaxProblems) return;
      // These results are correct while the index is open for writing: the writer may have crashed,
      // may still have to change the slot, or may have added a newer row of the key.
      if ((found >= 0 || found == kFoundInNewerRow) && is_open()) return;
      add(corrupt("key " + state.keys.shown(row))
              .expected("row ", row, " in the index")
              .found(found < 0 ? "none" : "row " + std::to_string(found)));
    });
    const std::int64_t num_slots = count_slots(state);
    // While a writer is active, slots may change during the check. So compare the counts only if no
    // slot of a committed row changed.
    if (is_open() && !(begin.is_settled && begin.num_rows == state.keys.num_rows &&
                       Moment::of(state) == begin)) {
      return problems;
    }
    if (num_slots != num_live) {
      add(corrupt("index of the keys")
              .expected(num_live, " slots, one for each key")
              .found(num_slots));
    }
    if (num_live != state.num_keys() && problems.empty()) {
      add(corrupt("index of the keys")
              .part("number of keys")
              .expected(num_live)
              .found(state.num_keys()));
    }
  } catch (const Error& error) {
    if (error.code() != ErrorCode::corrupt) throw;
    add(error);
  }
  return problems;
}

}  // namespace tenfold

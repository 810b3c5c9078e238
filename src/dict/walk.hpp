#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_set>
#include <vector>

#include "dict/handle.hpp"

namespace tenfold {

/// The keys of a dictionary in the order in which they were added, some at a time. A key that was
/// assigned keeps its place, that of its first row, whatever row has its value now.
///
/// It goes over the rows that there were when it began, and finds each key that they name once,
/// with its value of now, also while others assign keys. Of keys that were assigned it remembers
/// those whose last row is still to come. Of rows that were committed just before it began, so that
/// the index may name those before, or these, when it comes to them, it remembers all.
///
/// Thread safety: one thread at a time.
class DictWalk {
 public:
  /// Rows of keys now.
  using Find = std::function<FoundRows(const DictKeys& keys)>;

  struct Block {
    std::vector<std::int64_t> places;        ///< rows of keys()
    std::vector<std::int64_t> rows;          ///< of the values of these keys
    std::shared_ptr<const DictState> state;  ///< that has the values
  };

  DictWalk(std::shared_ptr<const DictState> begun, Find find);

  /// The next keys; none at the end.
  Block next();
  /// The keys by their places.
  const StoredKeys& keys() const noexcept { return begun_->keys; }

 private:
  struct Hash {
    const DictState* state;
    std::size_t operator()(std::int64_t row) const {
      return state->keys.hash(row, state->index->seed());
    }
  };
  struct Same {
    const StoredKeys* keys;
    bool operator()(std::int64_t a, std::int64_t b) const { return keys->same(a, b); }
  };

  FoundRows find_keys(std::int64_t begin, std::int64_t end) const;
  bool is_first(std::int64_t row, std::int64_t newest);

  std::shared_ptr<const DictState> begun_;
  Find find_;
  std::int64_t next_ = 0;
  using KeysOfRows = std::unordered_set<std::int64_t, Hash, Same>;
  /// First rows of keys that are done, though rows of them may come.
  KeysOfRows done_;
  std::int64_t num_settled_;  ///< rows whose slots are in the index
  KeysOfRows unsettled_;      ///< the other rows
};

}  // namespace tenfold

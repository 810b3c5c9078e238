#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_set>
#include <vector>

#include "dict/handle.hpp"

namespace tenfold {

/// Iterates over the keys of a dictionary in insertion order, in blocks. A key that was assigned
/// keeps the position of its first row, whichever row has its value now.
///
/// The iteration covers the rows that existed at the start, and returns each of their keys once,
/// even while other handles assign keys. If no row was superseded at the start, each value is the
/// value at the start; otherwise it is the value when its block is returned. The first rows of
/// assigned keys are stored until the iteration reaches their last rows. The index may be out of
/// date for rows of the last commit before the start, so all keys of that commit are stored.
///
/// Thread safety: one thread at a time.
class DictWalk {
 public:
  /// Looks up the current rows of keys.
  using Find = std::function<FoundRows(const DictKeys& keys)>;

  struct Block {
    std::vector<std::int64_t> places;        ///< the block's keys, as row indices into keys()
    std::vector<std::int64_t> rows;          ///< row of the value of each key
    std::shared_ptr<const DictState> state;  ///< the state to which `rows` belongs
  };

  DictWalk(std::shared_ptr<const DictState> begun, Find find);

  /// The next block of keys; empty at the end. Throws Error(io) with ESTALE if the dictionary was
  /// replaced by one that lacks keys of the iteration.
  Block next();
  /// The stored keys, indexed by Block::places.
  const StoredKeys& keys() const noexcept { return begun_->keys; }

 private:
  /// The seed is not that of the index, because a file can be made with keys that collide under the
  /// seed in its own index.
  struct Hash {
    const StoredKeys* keys;
    std::uint64_t seed;
    std::size_t operator()(std::int64_t row) const { return keys->hash(row, seed); }
  };
  struct Same {
    const StoredKeys* keys;
    bool operator()(std::int64_t a, std::int64_t b) const { return keys->same(a, b); }
  };

  /// The result of a lookup of keys: the rows of their values, and their last rows in keys().
  struct FoundKeys {
    FoundRows values;
    std::vector<std::int64_t> rows;
  };

  FoundKeys find_keys(std::int64_t begin, std::int64_t end) const;
  FoundKeys find_keys(const DictKeys& keys) const;
  bool is_first(std::int64_t row, std::int64_t newest);

  std::shared_ptr<const DictState> begun_;
  Find find_;
  std::int64_t next_ = 0;
  using KeysOfRows = std::unordered_set<std::int64_t, Hash, Same>;
  /// The first rows of keys that were returned but may occur again in later rows.
  KeysOfRows done_;
  std::int64_t num_settled_;  ///< number of leading rows whose slots are certainly up to date
  KeysOfRows unsettled_;      ///< keys of the rows from num_settled_ on
};

}  // namespace tenfold

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "dict/keys.hpp"

namespace tenfold {

/// Marks the keys that occur again later: all but the last occurrence of each key. Sorts hashes,
/// because a hash set of many keys takes several times as much memory. `seed` must be
/// unpredictable (and not that of an index, which is in the file), so that nobody can choose
/// colliding keys.
template <class Key>
std::vector<bool> is_repeated(std::span<const Key> keys, std::uint64_t seed) {
  struct Place {
    std::uint64_t hash;
    std::size_t number;
    bool operator<(const Place& o) const noexcept {
      return hash < o.hash || (hash == o.hash && number < o.number);
    }
  };
  std::vector<bool> again(keys.size());
  if (keys.size() < 2) return again;
  std::vector<Place> places;
  places.reserve(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) places.push_back({dict_hash(keys[i], seed), i});
  std::sort(places.begin(), places.end());
  for (std::size_t first = 0; first < places.size();) {
    std::size_t last = first + 1;
    while (last < places.size() && places[last].hash == places[first].hash) ++last;
    // Equal hashes nearly always mean equal keys; the last occurrence of each key is kept.
    std::vector<std::size_t> kept;
    for (std::size_t k = last; k-- > first;) {
      const std::size_t number = places[k].number;
      const auto is_same = [&](std::size_t other) { return keys[other] == keys[number]; };
      if (std::ranges::any_of(kept, is_same)) {
        again[number] = true;
      } else if (last - first > 1) {
        kept.push_back(number);
      }
    }
    first = last;
  }
  return again;
}

}  // namespace tenfold

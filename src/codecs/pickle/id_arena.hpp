#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace tenfold::codecs {

/// Arena for lists of node indices that are freed together. A graph may have millions of lists, and
/// allocating each of them separately would take most of the time of reading the graph.
class IdArena {
 public:
  /// Copies a list that will not grow.
  std::span<const std::uint32_t> fixed(std::span<const std::uint32_t> ids) {
    std::uint32_t* const list = room(ids.size());
    std::copy(ids.begin(), ids.end(), list);
    return {list, ids.size()};
  }

  /// Returns `list` with `ids` appended. `list` must be empty or the latest result of appended()
  /// for this list. Space is reserved up to the next power of two.
  std::span<const std::uint32_t> appended(std::span<const std::uint32_t> list,
                                          std::span<const std::uint32_t> ids) {
    const std::size_t size = list.size() + ids.size();
    if (size == list.size()) return list;
    // The const_cast is safe: the memory is the arena's own, and is const only for readers.
    auto* data = const_cast<std::uint32_t*>(list.data());
    if (list.empty() || size > std::bit_ceil(list.size())) {
      data = room(std::bit_ceil(size));
      std::copy(list.begin(), list.end(), data);
    }
    std::copy(ids.begin(), ids.end(), data + list.size());
    return {data, size};
  }

 private:
  static constexpr std::size_t kBlock = 16384;

  std::uint32_t* room(std::size_t count) {
    if (count > left_) {
      left_ = std::max(count, kBlock);
      blocks_.push_back(std::make_unique_for_overwrite<std::uint32_t[]>(left_));
      next_ = blocks_.back().get();
    }
    std::uint32_t* const list = next_;
    next_ += count;
    left_ -= count;
    return list;
  }

  std::vector<std::unique_ptr<std::uint32_t[]>> blocks_;
  std::uint32_t* next_ = nullptr;
  std::size_t left_ = 0;
};

}  // namespace tenfold::codecs

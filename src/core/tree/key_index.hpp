#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace tenfold {

/// An open-addressing hash table from a key to its position in a list that the caller keeps. Keys
/// are compared through `key_at(position)`, so the table stores no strings.
class KeyIndex {
 public:
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;

  bool built() const noexcept { return !slots_.empty(); }
  void clear() noexcept {
    slots_.clear();
    size_ = 0;
  }
  void reserve(std::size_t count);

  /// The position of `key`, or kNone.
  template <class KeyAt>
  std::uint32_t find(std::string_view key, const KeyAt& key_at) const {
    if (slots_.empty()) return kNone;
    const std::uint64_t hash = hash_of(key);
    const auto tag = static_cast<std::uint32_t>(hash >> 32);
    for (std::size_t i = hash & (slots_.size() - 1);; i = (i + 1) & (slots_.size() - 1)) {
      const Slot& slot = slots_[i];
      if (slot.position == kNone) return kNone;
      if (slot.tag == tag && key_at(slot.position) == key) return slot.position;
    }
  }

  /// Adds `key` at `position` and returns kNone. If there is an equal key, adds nothing and returns
  /// the position of that key.
  template <class KeyAt>
  std::uint32_t insert(std::string_view key, std::uint32_t position, const KeyAt& key_at) {
    if ((size_ + 1) * 2 > slots_.size()) grow();
    const std::uint64_t hash = hash_of(key);
    const auto tag = static_cast<std::uint32_t>(hash >> 32);
    std::size_t i = hash & (slots_.size() - 1);
    for (; slots_[i].position != kNone; i = (i + 1) & (slots_.size() - 1)) {
      if (slots_[i].tag == tag && key_at(slots_[i].position) == key) return slots_[i].position;
    }
    slots_[i] = {tag, position, hash};
    ++size_;
    return kNone;
  }

 private:
  struct Slot {
    std::uint32_t tag = 0;
    std::uint32_t position = kNone;
    std::uint64_t hash = 0;
  };
  static std::uint64_t hash_of(std::string_view key) noexcept;
  void grow();

  std::vector<Slot> slots_;
  std::size_t size_ = 0;
};

}  // namespace tenfold

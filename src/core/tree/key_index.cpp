#include "core/tree/key_index.hpp"

#include <bit>
#include <span>

#include "base/hash/checksum.hpp"

namespace tenfold {

std::uint64_t KeyIndex::hash_of(std::string_view key) noexcept {
  // Keys come from files: without a seed, a hostile file could make all of them collide.
  return base::xxh3_seeded(std::as_bytes(std::span(key.data(), key.size())), base::hash_seed());
}

void KeyIndex::reserve(std::size_t count) {
  const std::size_t wanted = std::bit_ceil(count * 2 + 2);
  if (wanted <= slots_.size()) return;
  std::vector<Slot> old(wanted);
  old.swap(slots_);
  for (const Slot& slot : old) {
    if (slot.position == kNone) continue;
    std::size_t i = slot.hash & (slots_.size() - 1);
    while (slots_[i].position != kNone) i = (i + 1) & (slots_.size() - 1);
    slots_[i] = slot;
  }
}

void KeyIndex::grow() { reserve(slots_.empty() ? 7 : slots_.size() - 1); }

}  // namespace tenfold

#include "core/tree/node.hpp"

#include <type_traits>
#include <utility>

#include "core/tree/bare.hpp"

namespace tenfold {
namespace {

/// Converts a Slot to an Item; nullopt for a LazyItem.
std::optional<TensorDict::Item> item_of(const Node::Slot& slot) {
  return std::visit(
      [](const auto& held) -> std::optional<TensorDict::Item> {
        if constexpr (std::is_same_v<std::decay_t<decltype(held)>, std::shared_ptr<LazyItem>>) {
          return std::nullopt;
        } else {
          return TensorDict::Item(held);
        }
      },
      slot);
}

}  // namespace

std::size_t Node::find(std::string_view key) const {
  // Up to this size, linear search is faster than hashing, and most nodes are small.
  constexpr std::size_t kFewEntries = 8;
  if (entries.size() <= kFewEntries) {
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (entries[i].key == key) return i;
    }
    return npos;
  }
  const auto key_at = [this](std::uint32_t i) -> std::string_view { return entries[i].key; };
  const std::lock_guard lock(mutex);
  if (!index.built()) {
    index.reserve(entries.size());
    for (std::size_t i = 0; i < entries.size(); ++i) {
      index.insert(entries[i].key, static_cast<std::uint32_t>(i), key_at);
    }
  }
  const std::uint32_t position = index.find(key, key_at);
  return position == KeyIndex::kNone ? npos : position;
}

std::size_t Node::find_or_stem(std::string_view key) const {
  const std::size_t position = find(key);
  if (position != npos || !is_bare(*this)) return position;
  return !key.empty() && key == stem_of(where) ? 0 : npos;
}

const Leaf* Node::leaf_at(std::size_t position) const {
  const std::lock_guard lock(mutex);
  return std::get_if<Leaf>(&entries[position].slot);
}

TensorDict::Item Node::item(std::size_t position) {
  // Locked while a LazyItem loads, so that a second thread waits for the result of the first.
  const std::lock_guard lock(mutex);
  Slot& slot = entries[position].slot;
  if (auto* lazy = std::get_if<std::shared_ptr<LazyItem>>(&slot)) {
    TensorDict::Item loaded = (*lazy)->load();
    std::visit([&slot](const auto& held) { slot = held; }, loaded);
    return loaded;
  }
  return *item_of(slot);
}

std::optional<TensorDict::Item> Node::loaded_item(std::size_t position) const {
  const std::lock_guard lock(mutex);
  return item_of(entries[position].slot);
}

}  // namespace tenfold

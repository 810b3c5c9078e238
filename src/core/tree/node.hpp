#pragma once

#include <cstdint>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <tenfold/tensordict.hpp>

#include "base/access.hpp"
#include "core/tree/key_index.hpp"

namespace tenfold {

/// An entry whose metadata is read when it is first asked for (a sub-folder, an object).
class LazyItem {
 public:
  virtual ~LazyItem() = default;
  /// Reads it. Called at most once if it succeeds.
  virtual TensorDict::Item load() = 0;
};

/// The deepest tree that is walked. No program nests like that, but a file can say so, and a
/// node that was put into itself has no end.
inline constexpr std::size_t kMaxDepth = 512;

/// The largest dimension that a lazy stack of torch, whose tensors have 64, can be along.
inline constexpr std::int64_t kMaxStackDim = 63;

namespace detail {

/// What a TensorDict is a handle of.
struct Node {
  using Slot = std::variant<Leaf, NonTensor, TensorDict, std::shared_ptr<LazyItem>>;
  struct Entry {
    std::string key;
    Slot slot;
  };

  NodeInfo info;
  std::string where;  ///< for messages: the path of the file or folder, and of the node within
  std::vector<Entry> entries;
  mutable std::mutex mutex;    ///< guards the replacing of a LazyItem, and `index`
  mutable KeyIndex index;      ///< made at the first look-up by key
  std::shared_ptr<void> keep;  ///< whatever must live as long as the node: a lock, a source

  /// The position of `key`, or npos.
  static constexpr std::size_t npos = static_cast<std::size_t>(-1);
  std::size_t find(std::string_view key) const;
  /// The same; the stem of the file's name is the entry of a bare root, too.
  std::size_t find_or_stem(std::string_view key) const;
  /// The tensor at `position`, in place, or null if another kind of entry is there. The pointer
  /// stays good until the entry is set anew.
  const Leaf* leaf_at(std::size_t position) const;
  /// The entry as an Item, loading a LazyItem.
  TensorDict::Item item(std::size_t position);
  /// As item(), but nothing if it would have to be loaded.
  std::optional<TensorDict::Item> loaded_item(std::size_t position) const;
};

}  // namespace detail

using detail::Node;

inline const std::shared_ptr<Node>& node_of(const TensorDict& tree) noexcept {
  return detail::Access::node(tree);
}

/// As TensorDict::contains() and get() of a path of one key: dots in it mean nothing.
bool has_key(const TensorDict& tree, std::string_view key);
TensorDict::Item item_at_key(const TensorDict& tree, std::string_view key);

inline TensorDict tensordict_of(std::shared_ptr<Node> node) {
  return detail::Access::make<TensorDict>(std::move(node));
}

}  // namespace tenfold

#pragma once

#include <cstdint>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <tenfold/error.hpp>
#include <tenfold/tensordict.hpp>

#include "base/access.hpp"
#include "core/tree/key_index.hpp"

namespace tenfold {

/// An entry whose metadata is read at its first access (a sub-folder, a pickled object).
class LazyItem {
 public:
  virtual ~LazyItem() = default;
  /// Reads the entry. Not called again after a call that succeeded.
  virtual TensorDict::Item load() = 0;
};

/// An entry that cannot be read: accessing it throws, without affecting other entries.
class RefusedItem final : public LazyItem {
 public:
  explicit RefusedItem(Error error) : error_(std::move(error)) {}
  TensorDict::Item load() override { throw error_; }

 private:
  Error error_;
};

/// Maximum depth of a tree. Real trees are not that deep, but a hostile file may be, and a node
/// that contains itself has infinite depth.
inline constexpr std::size_t kMaxDepth = 512;

/// The largest stack_dim of a lazy stack: many operations of torch support at most 64 dimensions.
inline constexpr std::int64_t kMaxStackDim = 63;

namespace detail {

/// The node behind a TensorDict, which is a handle.
struct Node {
  using Slot = std::variant<Leaf, NonTensor, TensorDict, std::shared_ptr<LazyItem>>;
  struct Entry {
    std::string key;
    Slot slot;
  };

  NodeInfo info;
  std::string where;  ///< for messages: the path of the file or folder, and of the node in it
  std::vector<Entry> entries;
  mutable std::mutex mutex;    ///< guards replacing a LazyItem, and `index`
  mutable KeyIndex index;      ///< built at the first lookup by key in more than 8 entries
  std::shared_ptr<void> keep;  ///< keeps a lock or a source alive as long as the node

  /// The position of `key`, or npos.
  static constexpr std::size_t npos = static_cast<std::size_t>(-1);
  std::size_t find(std::string_view key) const;
  /// Like find(), but the stem of the file's name also finds the entry of a bare root.
  std::size_t find_or_stem(std::string_view key) const;
  /// The tensor at `position`, or null if the entry is of another kind or not loaded yet. The
  /// pointer is valid until an entry is added or this one is replaced.
  const Leaf* leaf_at(std::size_t position) const;
  /// The entry as an Item. Loads a LazyItem.
  TensorDict::Item item(std::size_t position);
  /// Like item(), but returns nullopt if the entry is a LazyItem that is not loaded yet.
  std::optional<TensorDict::Item> loaded_item(std::size_t position) const;
};

}  // namespace detail

using detail::Node;

inline const std::shared_ptr<Node>& node_of(const TensorDict& tree) noexcept {
  return detail::Access::node(tree);
}

/// Like TensorDict::contains() and get() with a path of one key; dots in the key are not
/// separators.
bool has_key(const TensorDict& tree, std::string_view key);
TensorDict::Item item_at_key(const TensorDict& tree, std::string_view key);

/// Converts a JSON object, list or tuple to a node whose where() is `where`; nullopt for a scalar.
std::optional<TensorDict> node_of_value(const Value& value, std::string where);

inline TensorDict tensordict_of(std::shared_ptr<Node> node) {
  return detail::Access::make<TensorDict>(std::move(node));
}

}  // namespace tenfold

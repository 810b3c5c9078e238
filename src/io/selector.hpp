#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include <tenfold/io.hpp>
#include <tenfold/schema.hpp>
#include <tenfold/tensordict.hpp>

namespace tenfold {

/// Matches paths with a list of keys and globs, as select() does, and records which keys matched.
/// The time per path is linear in the number of globs and logarithmic in the number of other keys.
class Selector {
 public:
  explicit Selector(std::vector<KeyPath> keys);

  /// If a key names the column, or a record that contains it, selects all leaves of the column.
  void add_leaves_of(const Column& column);

  /// True if a key names the entry or node at `path` itself; `name` is dotted(path).
  bool names(const KeyPath& path, const std::string& name);

  /// True if a key names the entry at `path` or one of its ancestors. Starts with the topmost
  /// ancestor and stops at the first one that is named, so that only the keys that name it are
  /// recorded.
  bool selects_or_contains(const KeyPath& path);

  /// True if a key may name a descendant of the node whose dotted name is `name`.
  bool may_name_below(const std::string& name) const;

  /// True if every key matched.
  bool all_hit() const;
  /// Throws Error(key_not_found), with near matches in `tree`, for the first key that did not
  /// match.
  void require_all_hit(const TensorDict& tree) const;

 private:
  std::vector<KeyPath> keys_;  ///< the keys, then the leaves of add_leaves_of()
  std::vector<bool> hit_;
  std::map<std::string, std::vector<std::size_t>, std::less<>> by_name_;
  std::vector<std::size_t> globs_;
};

/// Returns those of `paths` that select() would keep if a tree had entries at all of them. Unlike
/// select(), accepts keys that match nothing.
std::vector<KeyPath> selected_paths(std::vector<KeyPath> paths, const Keys& keys,
                                    const Keys& exclude = {});

}  // namespace tenfold

#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include <tenfold/tensordict.hpp>

namespace tenfold {

/// Decides which paths a list of keys (as select() takes them) names, and remembers which keys
/// named something. Thousands of keys cost no more than one, globs excepted. Refers to `keys`.
class Selector {
 public:
  explicit Selector(const std::vector<KeyPath>& keys);

  /// True if a key names the entry or node at `path` itself; `name` is dotted(path).
  bool names(const KeyPath& path, const std::string& name);

  /// True if a key names the entry at `path` or a node above it.
  bool names_or_holds(const KeyPath& path);

  /// True if a key may name something below the node of that dotted name.
  bool may_name_below(const std::string& name) const;

  /// Throws Error(key_not_found), with near matches in `tree`, for the first key that named
  /// nothing.
  bool all_hit() const;
  void require_all_hit(const TensorDict& tree) const;

 private:
  const std::vector<KeyPath>& keys_;
  std::vector<bool> hit_;
  std::map<std::string, std::vector<std::size_t>, std::less<>> by_name_;
  std::vector<std::size_t> globs_;
};

}  // namespace tenfold

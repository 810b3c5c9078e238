#pragma once

#include <string>
#include <string_view>
#include <unordered_set>

#include <tenfold/tensordict.hpp>

#include "core/tree/node.hpp"

namespace tenfold::detail::formats {

/// Which stored bytes need no check because nobody loads them: those of the leaves of a tree that
/// were not selected. Headers, metadata and what no leaf names are for everybody.
class VerifyFilter {
 public:
  /// `whole` as it was opened, and what select() left of it. What cannot be read of `whole` is for
  /// everybody, too.
  VerifyFilter(const TensorDict& whole, TensorDict selected);

  const TensorDict& selected() const noexcept { return selected_; }

  /// True for the bytes of a selected leaf; `where` as LeafSource::where() names them.
  bool wants(const std::string& where) const { return wanted_.contains(where); }

  /// True for the bytes of leaves none of which was selected.
  bool skips(const std::string& where) const { return named_.contains(where) && !wants(where); }

 private:
  using Places = std::unordered_set<std::string>;
  static void add(Node& node, std::size_t depth, Places& places);
  static void add(const Leaf& leaf, Places& places);

  TensorDict selected_;
  Places named_;
  Places wanted_;
};

}  // namespace tenfold::detail::formats

#pragma once

#include <string>
#include <string_view>
#include <unordered_set>

#include <tenfold/tensordict.hpp>

#include "core/tree/node.hpp"

namespace tenfold::detail::formats {

/// Selects the stored bytes that need no check because they are not loaded: those of leaves that
/// were not selected. Headers, metadata and bytes outside of leaves are always checked.
class VerifyFilter {
 public:
  /// `whole` is the opened tree, `selected` the result of select(). Parts of `whole` that cannot be
  /// read are always checked.
  VerifyFilter(const TensorDict& whole, TensorDict selected);

  const TensorDict& selected() const noexcept { return selected_; }

  /// True for a selected leaf; `where` in the form of LeafSource::where().
  bool wants(const std::string& where) const { return wanted_.contains(where); }

  /// True if the bytes belong only to leaves that were not selected.
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

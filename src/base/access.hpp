#pragma once

#include <utility>

namespace tenfold::detail {

/// Gives the library access to private members of its public classes. The library calls it through
/// functions of its private headers, such as node_of(), source_of() and state_of().
struct Access {
  template <class T, class... Args>
  static T make(Args&&... args) {
    return T(std::forward<Args>(args)...);
  }
  static const auto& node(const auto& tree) noexcept { return tree.node_; }
  static const auto& source(const auto& leaf) noexcept { return leaf.source_; }
  static auto position(const auto& leaf) noexcept { return leaf.position_; }
  static auto state(const auto& handle) { return handle.state(); }
  static const auto& handle(const auto& dict) noexcept { return dict.handle_; }
};

}  // namespace tenfold::detail

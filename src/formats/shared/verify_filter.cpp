#include "formats/shared/verify_filter.hpp"

#include <optional>
#include <utility>
#include <variant>

#include <tenfold/error.hpp>

#include "core/tree/leaf_source.hpp"

namespace tenfold::detail::formats {

VerifyFilter::VerifyFilter(const TensorDict& whole, TensorDict selected)
    : selected_(std::move(selected)) {
  add(*whole.node(), 0, named_);
  add(*selected_.node(), 0, wanted_);
}

void VerifyFilter::add(Node& node, std::size_t depth, Places& places) {
  if (depth > kMaxDepth) return;
  for (std::size_t i = 0; i < node.entries.size(); ++i) {
    if (const Leaf* leaf = node.leaf_at(i)) {
      add(*leaf, places);
      continue;
    }
    std::optional<TensorDict::Item> item;
    try {
      item = node.item(i);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::io) throw;
      continue;  // not selected, because select() would have thrown
    }
    if (const auto* leaf = std::get_if<Leaf>(&*item)) {
      add(*leaf, places);
    } else if (const auto* child = std::get_if<TensorDict>(&*item)) {
      add(*child->node(), depth + 1, places);
    }
  }
}

void VerifyFilter::add(const Leaf& leaf, Places& places) {
  if (leaf.in_memory()) return;
  const std::vector<Leaf> parts = leaf.source()->parts(leaf);
  for (const Leaf& part : parts) add(part, places);
  if (parts.empty()) places.insert(leaf.source()->where(leaf));
}

}  // namespace tenfold::detail::formats

#include "formats/shared/verify_filter.hpp"

#include <optional>
#include <utility>
#include <variant>

#include <tenfold/error.hpp>

#include "core/tree/leaf_source.hpp"
#include "core/tree/node.hpp"

namespace tenfold::detail::formats {

VerifyFilter::VerifyFilter(const TensorDict& whole, TensorDict selected)
    : selected_(std::move(selected)) {
  add(*node_of(whole), 0, named_);
  add(*node_of(selected_), 0, wanted_);
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
      add(*node_of(*child), depth + 1, places);
    }
  }
}

void VerifyFilter::add(const Leaf& leaf, Places& places) {
  if (leaf.in_memory()) return;
  const std::vector<Leaf> parts = source_of(leaf)->parts(leaf);
  for (const Leaf& part : parts) add(part, places);
  if (parts.empty()) places.insert(source_of(leaf)->where(leaf).text());
}

}  // namespace tenfold::detail::formats

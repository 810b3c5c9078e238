#include "formats/shared/verify_filter.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include <tenfold/error.hpp>

#include "core/tree/assembled_source.hpp"
#include "core/tree/leaf_source.hpp"
#include "core/tree/node.hpp"

namespace tenfold::detail::formats {

VerifyFilter::VerifyFilter(const TensorDict& whole, TensorDict selected)
    : selected_(std::move(selected)) {
  add(*node_of(whole), 0, named_);
  add(*node_of(selected_), 0, wanted_);
}

VerifyFilter::VerifyFilter(const TensorDict& whole, TensorDict selected,
                           std::span<const LeafBox> boxes)
    : selected_(std::move(selected)) {
  add(*node_of(whole), 0, named_);
  for (const LeafBox& loaded : boxes) add_box(loaded.leaf, loaded.box);
}

bool VerifyFilter::skips(const std::string& where, std::uint64_t begin, std::uint64_t end) const {
  if (!named_.contains(where)) return false;
  const auto loaded = wanted_.find(where);
  if (loaded == wanted_.end()) return true;
  return !loaded->second.is_whole &&
         std::ranges::none_of(loaded->second.boxes,
                              [&](const ByteBox& box) { return overlaps(box, begin, end); });
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
      continue;  // the entry is not selected, because select() would have thrown
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
  if (parts.empty()) places[source_of(leaf)->where(leaf).text()].is_whole = true;
}

void VerifyFilter::add_box(const Leaf& leaf, const Box& box) {
  if (leaf.in_memory() || numel_of(box.sizes) == 0) return;
  if (const auto* pieces = dynamic_cast<const AssembledSource*>(source_of(leaf).get())) {
    for (const TensorPiece& piece : pieces->pieces()) {
      const auto inside = part_inside({piece.offsets, piece.leaf.shape()}, box);
      if (inside) add_box(piece.leaf, *inside);
    }
    return;
  }
  auto bytes =
      leaf.is_nested() ? std::nullopt : byte_box(leaf.shape(), itemsize(leaf.dtype()), box);
  if (!bytes || !source_of(leaf)->parts(leaf).empty()) return add(leaf, wanted_);
  wanted_[source_of(leaf)->where(leaf).text()].boxes.push_back(std::move(*bytes));
}

}  // namespace tenfold::detail::formats

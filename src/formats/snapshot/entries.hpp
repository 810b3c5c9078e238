#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/tree/node.hpp"
#include "formats/snapshot/manifest.hpp"
#include "formats/snapshot/source.hpp"

namespace tenfold::detail::formats::snapshot {

/// What all parts of the tree share.
struct Context {
  std::shared_ptr<const Manifest> manifest;
  std::shared_ptr<Files> files;
  std::string where;
  /// The entries of sharded tensors, of all ranks, by path without rank.
  std::unordered_map<std::string_view, std::vector<const Entry*>> sharded;
};

/// The entry that a rank sees at a path (without a rank): its own, a replicated one of rank 0, or
/// shards that others hold. Null if there is none.
const Entry* find_entry(const Context& context, const std::string& rank, const std::string& path);

/// The tree below one entry, as one rank sees it; `path` without the rank, `key` for messages. A
/// plain value is a NonTensor. What is wrong with one entry is told to who asks for it.
Node::Slot slot_of_entry(const std::shared_ptr<const Context>& context, const std::string& rank,
                         const std::string& path, const std::string& key);

}  // namespace tenfold::detail::formats::snapshot

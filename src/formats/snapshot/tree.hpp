#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tenfold/tensordict.hpp>

#include "formats/format.hpp"
#include "formats/snapshot/manifest.hpp"
#include "os/fs/directory.hpp"

namespace tenfold::detail::formats::snapshot {

/// Builds the tree of a snapshot: a dict (or list, if app_state was one) of the elements of
/// app_state; each container among them is built at its first access. With several ranks, a dict
/// "0", "1", ... of the tree that each rank would restore: its own entries, replicated entries of
/// rank 0, and tensors assembled from the shards of all ranks. It has the ranks with entries of
/// their own, and `for_rank`.
///
/// Entries that a tree cannot contain (quantized tensors, unknown types) and invalid entries throw
/// when they are accessed, naming the key; the others are not affected. If `for_rank` is a rank
/// that did not save, the tree of rank 0 is for it: entries that each rank has for itself throw
/// Error(key_not_found).
TensorDict build_tree(std::shared_ptr<const Manifest> manifest, os::Directory root,
                      const std::string& where, std::optional<std::int64_t> for_rank = {});

/// Returns the paths of entries that no container lists, so that they are not in the tree.
std::vector<std::string> unreachable(const Manifest& manifest);

}  // namespace tenfold::detail::formats::snapshot

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

/// Builds the tree of a snapshot. If one rank took it, the tree is app_state: a dict, or a list if
/// app_state was one. Each container directly in app_state is built at its first access. If several
/// ranks took the snapshot, the tree is a dict with keys "0", "1", ... and the app_state that each
/// rank would restore: its own entries, the replicated entries of rank 0, and tensors assembled
/// from the shards of all ranks; the tree of each rank is built at its first access. The dict has
/// the ranks with entries of their own, and `for_rank` if that rank took part. If it did not, the
/// tree of rank 0 is the tree for it: access to an entry of this tree that is neither replicated
/// nor sharded throws Error(key_not_found).
///
/// Entries that a tree cannot contain (quantized tensors, unknown types) and invalid entries throw
/// when they are accessed; the error names the key. Other entries are not affected.
TensorDict build_tree(std::shared_ptr<const Manifest> manifest, os::Directory root,
                      const std::string& where, std::optional<std::int64_t> for_rank = {});

/// Returns the paths of entries that are not in the tree because no container lists them. Of the
/// elements of a list after a missing one, returns only the first.
std::vector<std::string> unreachable(const Manifest& manifest);

}  // namespace tenfold::detail::formats::snapshot

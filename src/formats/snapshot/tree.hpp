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

/// Builds the tree of a snapshot in the folder `root`; `where` names the folder. If one rank took
/// the snapshot, the tree is app_state: a dict, or a list if app_state was one. Each container
/// directly in app_state is built at its first access.
///
/// If several ranks took the snapshot, the tree is a dict with keys "0", "1", ... Its entries are
/// the app_state that each rank would restore: the own entries of the rank, the replicated entries
/// of rank 0, and tensors assembled from the shards of all ranks. The tree of each rank is built at
/// its first access. The dict has a key for each rank with entries of its own.
///
/// `for_rank` is the rank that restores from the tree, if it is known. If this rank took part in
/// the snapshot, the dict has its key even if it has no entries of its own. If it did not take
/// part, it restores the app_state of rank 0: access to an entry in it that is neither replicated
/// nor sharded then throws Error(key_not_found).
///
/// Entries that a tree cannot contain (quantized tensors, unknown types) and invalid entries throw
/// when they are accessed; the error names the key. Other entries are not affected.
TensorDict build_tree(std::shared_ptr<const Manifest> manifest, os::Directory root,
                      const std::string& where, std::optional<std::int64_t> for_rank = {});

/// Returns the paths of entries that are not in the tree because no container lists them. If an
/// element of a list is missing, returns only the first of the elements after it.
std::vector<std::string> unreachable(const Manifest& manifest);

}  // namespace tenfold::detail::formats::snapshot

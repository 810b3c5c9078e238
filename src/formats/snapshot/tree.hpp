#pragma once

#include <memory>
#include <string>
#include <vector>

#include <tenfold/tensordict.hpp>

#include "formats/format.hpp"
#include "formats/snapshot/manifest.hpp"
#include "os/fs/directory.hpp"

namespace tenfold::detail::formats::snapshot {

/// The tree of a snapshot: a dict of what app_state held, each part made when it is entered. Of
/// several ranks: a dict "0", "1", ... of what each rank would restore: its own entries, those of
/// rank 0 that are replicated, and the shards of all ranks made whole.
///
/// What a tree cannot hold (bytes, quantized tensors, entries of unknown type) is refused when it
/// is asked for, by its key; the rest can be had. A rank also sees the sharded tensors that only
/// others have, behind its own entries of their dict.
///
/// `for_new_rank`: what rank 0 would see, had it taken no part in the snapshot. Entries that each
/// rank has for itself are refused with Error(key_not_found) when they are asked for.
TensorDict build_tree(std::shared_ptr<const Manifest> manifest, os::Directory root,
                      const std::string& where, bool for_new_rank = false);

/// The paths of entries that no container names: they are in no tree.
std::vector<std::string> unreachable(const Manifest& manifest);

}  // namespace tenfold::detail::formats::snapshot

#pragma once

#include <cstdint>
#include <set>
#include <string>

#include <tenfold/checkpoint_manager.hpp>

namespace tenfold::checkpoint {

/// One of the processes that restore together.
struct Rank {
  std::int64_t rank = 0;
  std::int64_t world_size = 1;
};

/// Checks the document and entries of the step at `path`. `rank` checks its own entries. Entries of
/// ranks >= world_size, and tensors of entries that belong to all ranks, are distributed over the
/// ranks, so that all ranks together check everything. `copied`: names of entries whose block
/// checksums are not compared here, because copy_entry() compares them.
VerifyReport verify_step(const Path& path, const CheckpointInfo& info, CheckpointCheck check,
                         const VerifyOptions& options, Rank rank = {},
                         const std::set<std::string>& copied = {});

/// Returns the rank whose entries `rank` restores: `rank` itself, or 0 if the step was saved by too
/// few ranks to have entries of `rank`.
std::int64_t own_rank(const CheckpointInfo& info, std::int64_t rank) noexcept;

/// Opens a step as a dict from names to entries: those that belong to all ranks, and those of
/// `rank`. Reads JSON entries, and opens other entries lazily. Throws like open_entry().
TensorDict open_state(const Path& path, const CheckpointInfo& info, std::int64_t rank);

/// Like open_state() for rank 0, but opens each entry at its first access. A damaged entry does not
/// prevent access to other entries.
TensorDict open_state_lazily(const Path& path, const CheckpointInfo& info);

}  // namespace tenfold::checkpoint

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

/// Checks the document and entries of the step at `path`. Each rank checks its own entries. The
/// tensors of entries without a rank, and the entries of ranks that this world lacks, are
/// distributed over the ranks of this world, so that together they check everything. `copied`:
/// entries whose tensors are not checked here, because copy_entry() compares them.
VerifyReport verify_step(const Path& path, const CheckpointInfo& info, CheckpointCheck check,
                         const VerifyOptions& options, Rank rank = {},
                         const std::set<std::string>& copied = {});

/// Returns the rank of the step whose entries `rank` restores: `rank`, or 0 if fewer ranks saved
/// it.
std::int64_t own_rank(const CheckpointInfo& info, std::int64_t rank) noexcept;

/// Opens the tree of a step: a dict of the entries that belong to all ranks and those of `rank`, by
/// name. Reads JSON entries, opens others lazily. Throws like open_entry().
TensorDict open_state(const Path& path, const CheckpointInfo& info, std::int64_t rank = 0);

}  // namespace tenfold::checkpoint

#pragma once

#include <cstdint>
#include <string>

#include <tenfold/checkpoint_manager.hpp>

namespace tenfold::checkpoint {

/// One of the processes that restore together.
struct Rank {
  std::int64_t rank = 0;
  std::int64_t world_size = 1;
};

/// Checks the document and the entries of the step at `path`: those of all ranks, those of this
/// one, and of each rank that this world lacks those that fall to it. A world checks everything.
VerifyReport verify_step(const Path& path, const CheckpointInfo& info, CheckpointCheck check,
                         const VerifyOptions& options, Rank rank = {});

/// The tree of a step: a dict whose top-level keys are the entries of all ranks and of this one,
/// opened lazily.
TensorDict open_state(const Path& path, const CheckpointInfo& info, std::int64_t rank = 0);

}  // namespace tenfold::checkpoint

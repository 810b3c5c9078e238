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

/// Checks the document and the entries of the step at `path`: those of all ranks, those of this
/// one, and of each rank that this world lacks those that fall to it. A world checks everything.
/// `copied`: entries of this rank or of all whose tensors are compared as they are copied.
VerifyReport verify_step(const Path& path, const CheckpointInfo& info, CheckpointCheck check,
                         const VerifyOptions& options, Rank rank = {},
                         const std::set<std::string>& copied = {});

/// Of a step of `info` the rank whose entries a rank gets.
std::int64_t own_rank(const CheckpointInfo& info, std::int64_t rank) noexcept;

/// The tree of a step: a dict whose top-level keys are the entries of all ranks and of this one,
/// opened lazily.
TensorDict open_state(const Path& path, const CheckpointInfo& info, std::int64_t rank = 0);

}  // namespace tenfold::checkpoint

#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <tenfold/checkpoint_manager.hpp>

#include "checkpoint/directory.hpp"

namespace tenfold::checkpoint {

/// Steps that are held (CheckpointManager::hold()), and steps that are known to be complete or
/// damaged. The result of a check is ignored if the files of the step changed after the check.
struct KnownSteps {
  std::set<std::int64_t> held;
  /// The newest step of the current lineage that this manager saved, or found undamaged.
  std::optional<std::int64_t> newest_verified;
  std::set<std::int64_t> damaged;  ///< this manager found them damaged
};

/// Returns for each step, in the order of the listing, the rules that keep it. Pruning removes the
/// steps that no rule keeps.
std::vector<std::vector<std::string>> kept_by(const Listing& listing,
                                              const CheckpointManagerOptions& options,
                                              const KnownSteps& known_steps);

/// Returns the steps that have a finite value of `metric`, best first. If two values are equal, the
/// step that was saved later comes first.
std::vector<const Step*> best_first(const Listing& listing, const std::string& metric,
                                    BestMode mode);

}  // namespace tenfold::checkpoint

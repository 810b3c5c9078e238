#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <tenfold/checkpoint_manager.hpp>

#include "checkpoint/directory.hpp"

namespace tenfold::checkpoint {

/// Steps that are held, and steps that are known to be complete or damaged. Only results of checks
/// count after which the files of the step did not change.
struct KnownSteps {
  std::set<std::int64_t> held;
  /// The newest step of the current line that this manager saved, or found undamaged.
  std::optional<std::int64_t> newest_verified;
  std::set<std::int64_t> damaged;  ///< this manager found them damaged
};

/// Returns the rules that keep each step, in the order of the listing. Pruning removes the steps
/// that no rule keeps.
std::vector<std::vector<std::string>> kept_by(const Listing& listing,
                                              const CheckpointManagerOptions& options,
                                              const KnownSteps& known_steps);

/// Returns the steps whose metric is a finite number, the best one first. If two are equal, the one
/// that was saved later comes first.
std::vector<const Step*> best_first(const Listing& listing, const std::string& metric,
                                    BestMode mode);

}  // namespace tenfold::checkpoint

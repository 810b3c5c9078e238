#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <tenfold/checkpoint_manager.hpp>

#include "checkpoint/directory.hpp"

namespace tenfold::checkpoint {

/// What retention knows besides the documents.
struct KnownSteps {
  std::set<std::int64_t> held;
  std::set<std::int64_t> verified;  ///< saved, or checked, by this manager
  std::set<std::int64_t> damaged;   ///< found so by this manager
};

/// The rules that keep each step, in the order of the listing; none: pruning removes it.
std::vector<std::vector<std::string>> kept_by(const Listing& listing,
                                              const CheckpointManagerOptions& options,
                                              const KnownSteps& known_steps);

/// Steps that have the metric as a finite number, the best one first; of equal ones the one that
/// was saved later.
std::vector<const Step*> best_first(const Listing& listing, const std::string& metric,
                                    BestMode mode);

}  // namespace tenfold::checkpoint

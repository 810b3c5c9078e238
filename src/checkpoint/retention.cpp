#include "checkpoint/retention.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace tenfold::checkpoint {
namespace {

/// Collects the rules that keep each step.
class Rules {
 public:
  explicit Rules(const Listing& listing) : steps_(listing.steps()), kept_(steps_.size()) {}

  void keep(const Step& step, const std::string& rule) {
    kept_[static_cast<std::size_t>(&step - steps_.data())].push_back(rule);
  }
  std::vector<std::vector<std::string>> take() { return std::move(kept_); }

 private:
  const std::vector<Step>& steps_;
  std::vector<std::vector<std::string>> kept_;
};

/// Keeps the `count` newest steps of the current lineage (see CheckpointManager), and all steps of
/// other lineages. Skips steps that are known to be damaged, and does not count them.
void keep_newest(const Listing& listing, std::int64_t count, const KnownSteps& known_steps,
                 Rules& rules) {
  for (auto step = listing.steps().rbegin(); step != listing.steps().rend(); ++step) {
    if (known_steps.damaged.contains(step->info.step)) continue;
    if (!listing.is_in_current_lineage(*step)) {
      rules.keep(*step, "other lineage");
    } else if (count > 0) {
      rules.keep(*step, "newest");
      --count;
    }
  }
}

}  // namespace

std::vector<const Step*> best_first(const Listing& listing, const std::string& metric,
                                    BestMode mode) {
  std::vector<const Step*> steps;
  const auto value_of = [&](const Step* step) { return step->info.metrics.at(metric); };
  for (const Step& step : listing.steps()) {
    if (!step.has_valid_document) continue;
    const auto found = step.info.metrics.find(metric);
    if (found != step.info.metrics.end() && std::isfinite(found->second)) steps.push_back(&step);
  }
  std::ranges::sort(steps, [&](const Step* a, const Step* b) {
    if (value_of(a) != value_of(b)) {
      return mode == BestMode::min ? value_of(a) < value_of(b) : value_of(a) > value_of(b);
    }
    return a->info.seq > b->info.seq;
  });
  return steps;
}

std::vector<std::vector<std::string>> kept_by(const Listing& listing,
                                              const CheckpointManagerOptions& options,
                                              const KnownSteps& known_steps) {
  Rules rules(listing);
  if (options.max_to_keep) {
    keep_newest(listing, *options.max_to_keep, known_steps, rules);
  } else {
    for (const Step& step : listing.steps()) rules.keep(step, "all");
  }
  for (const Step& step : listing.steps()) {
    if (options.keep_every && step.info.step % *options.keep_every == 0) {
      rules.keep(step, "every " + std::to_string(*options.keep_every));
    }
    if (known_steps.held.contains(step.info.step)) rules.keep(step, "held");
  }
  if (!options.best.empty()) {
    std::int64_t left = options.best_to_keep;
    for (const Step* step : best_first(listing, options.best, options.best_mode)) {
      if (left-- <= 0) break;
      rules.keep(*step, "best " + options.best);
    }
  }
  // Keep one step that is known to be complete, in case all other steps are damaged.
  if (known_steps.newest_verified) {
    rules.keep(*listing.find(*known_steps.newest_verified), "verified");
  }
  return rules.take();
}

}  // namespace tenfold::checkpoint

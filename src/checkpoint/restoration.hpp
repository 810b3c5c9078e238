#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <tenfold/checkpoint_manager.hpp>
#include <tenfold/error.hpp>

#include "checkpoint/directory.hpp"
#include "checkpoint/state.hpp"
#include "checkpoint/step.hpp"

namespace tenfold::checkpoint {

/// The steps that a restore may take, the best one first. Processes that restore together make one
/// each, and agree on a step by its number and seq.
class Restoration {
 public:
  /// Throws Error(file_not_found) if there is no step, Error(key_not_found) if not the one that is
  /// asked for.
  Restoration(const CheckpointManager& manager, const CheckpointRestoreOptions& options);

  const std::vector<Step>& candidates() const noexcept { return candidates_; }
  const Path& directory() const noexcept { return directory_; }

  /// Checks a candidate and opens it with the entries of `rank`; a rank that the step does not have
  /// gets those of rank 0. Throws Error(corrupt) or
  /// Error(file_not_found) if it is damaged, other errors if that is not known. `copied`: entries
  /// that the caller copies next, by copy_entry() with checksums, before it takes the step.
  RestoredCheckpoint open(const Step& step, CheckpointCheck check, Rank rank, Monitor* monitor,
                          const std::set<std::string>& copied = {}) const;
  /// Notes a damaged candidate. Throws Error(corrupt) if it is the one that was asked for.
  void skip(const Step& step, const Error& error, bool warns);
  const std::vector<SkippedCheckpoint>& skipped() const noexcept { return skipped_; }
  /// Error(corrupt), for when every candidate was passed over.
  [[noreturn]] void fail() const;

 private:
  Path path_of(const Step& step) const;

  std::shared_ptr<Internals::State> state_;  ///< of the directory; null for a step's folder
  Path directory_;
  bool is_given_ = false;  ///< one step was asked for
  std::vector<Step> candidates_;
  std::vector<SkippedCheckpoint> skipped_;
};

/// True for the errors of a step that is damaged, or that was pruned since it was listed.
bool is_damage(const Error& error) noexcept;

}  // namespace tenfold::checkpoint

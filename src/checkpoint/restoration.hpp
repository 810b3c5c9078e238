#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
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

/// The steps that can be restored, the preferred one first. Processes that restore together create
/// one each, and agree on a step by its number and seq.
class Restoration {
 public:
  /// Throws Error(key_not_found) if the requested step is missing. If the document of the requested
  /// step cannot be read, throws that error. Without a requested step, throws Error(file_not_found)
  /// if there is no step; if no document can be read, throws one error that lists the problems. It
  /// is Error(corrupt) if a document is damaged, otherwise it has the code of the newest problem
  /// that is not a missing document. Throws Error(invalid_argument) if the options have both `path`
  /// and `discard_later`.
  Restoration(const CheckpointManager& manager, const CheckpointRestoreOptions& options);

  const std::vector<Step>& candidates() const noexcept { return candidates_; }
  const Path& directory() const noexcept { return directory_; }

  /// Checks a candidate and opens it with the entries of `rank`, or with those of rank 0 if the
  /// step does not have that rank. Throws Error(corrupt) if the step is damaged or the check finds
  /// an entry that cannot be read, Error(file_not_found) if the step or, without a check, a file
  /// was removed. Throws other errors as they are, such as the error of a cancelled call, or of a
  /// process that can open no more files. `copied`: entries whose tensors are not checked here,
  /// because the caller copies them with copy_entry(), which compares checksums.
  RestoredCheckpoint open(const Step& step, CheckpointCheck check, Rank rank, Monitor* monitor,
                          const std::set<std::string>& copied = {});
  /// Records a candidate that open() or the caller found damaged. Returns false if another process
  /// removed or replaced the step since it was listed: it is not damaged, and the caller must
  /// create a new object, which lists the steps again. Throws Error(corrupt) if the step was
  /// requested and is damaged, Error(key_not_found) if it was requested and removed.
  bool skip(const Step& step, const Error& error, bool warns);
  const std::vector<SkippedCheckpoint>& skipped() const noexcept { return skipped_; }
  /// Throws the Error(corrupt) of a restore that has skipped all candidates.
  [[noreturn]] void fail() const;

 private:
  Path path_of(const Step& step) const;
  /// Returns the damaged steps with a higher number, newest first.
  std::vector<SkippedCheckpoint> skipped_after(std::int64_t step) const;

  std::shared_ptr<Internals::State> state_;  ///< null for a step's folder
  Path directory_;
  bool is_given_ = false;  ///< one step was requested
  std::vector<Step> candidates_;
  std::vector<SkippedCheckpoint> skipped_;
  std::vector<SkippedCheckpoint> without_document_;  ///< of any line, because it is unknown
  std::map<std::int64_t, std::uint64_t> stats_;      ///< stats_of() opened candidates, by seq
};

/// Returns true if `error` means that the step is damaged, or that it was removed or replaced since
/// it was listed.
bool is_damage(const Error& error) noexcept;

}  // namespace tenfold::checkpoint

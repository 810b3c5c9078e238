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

/// The steps that can be restored, in order of preference. If several processes restore together,
/// each creates a Restoration, and they agree on a step by its number and seq.
class Restoration {
 public:
  /// Throws Error(key_not_found) if the requested step is missing. If the document of the requested
  /// step cannot be read, throws the error of reading it. Without a requested step, throws an error
  /// if no document can be read: Error(file_not_found) if all documents are missing, Error(corrupt)
  /// if one is damaged, otherwise an error with the code of the highest step that has a document.
  /// Throws Error(invalid_argument) if the options have both `path` and `discard_later`.
  Restoration(const CheckpointManager& manager, const CheckpointRestoreOptions& options);

  const std::vector<Step>& candidates() const noexcept { return candidates_; }
  const Path& directory() const noexcept { return directory_; }

  /// Checks a candidate and opens it with the entries of `rank`, or with those of rank 0 if the
  /// step does not have that rank. Throws Error(corrupt) if the step is damaged or the check finds
  /// an entry that cannot be read. Throws Error(file_not_found) if the step was removed or, with
  /// CheckpointCheck::none, if a file was removed. Other errors pass unchanged, such as the error
  /// of a cancelled call or of a process that has too many open files. `copied`: names of entries
  /// whose block checksums are not compared here, because the caller copies these entries with
  /// copy_entry(), which compares them.
  RestoredCheckpoint open(const Step& step, CheckpointCheck check, Rank rank, Monitor* monitor,
                          const std::set<std::string>& copied = {});
  /// Records a candidate that open() or the caller found damaged. Returns false if another process
  /// removed or replaced the step after it was listed. Then the step is not damaged, and the caller
  /// must create a new Restoration, which lists the steps again. If the step was requested, throws
  /// Error(corrupt) if it is damaged, Error(key_not_found) if it was removed.
  bool skip(const Step& step, const Error& error, bool warns);
  const std::vector<SkippedCheckpoint>& skipped() const noexcept { return skipped_; }
  /// Throws the Error(corrupt) for a restore that found all candidates damaged.
  [[noreturn]] void fail() const;

 private:
  Path path_of(const Step& step) const;
  /// Returns the damaged steps with a number greater than `step`, highest number first.
  std::vector<SkippedCheckpoint> skipped_after(std::int64_t step) const;

  std::shared_ptr<Internals::State> state_;  ///< null if `path` names a single step
  Path directory_;
  bool is_given_ = false;  ///< one step was requested
  std::vector<Step> candidates_;
  std::vector<SkippedCheckpoint> skipped_;
  /// Steps whose lineage is unknown, because they have no valid document.
  std::vector<SkippedCheckpoint> without_document_;
  /// The results of stats_of() for the opened candidates, by seq.
  std::map<std::int64_t, std::uint64_t> stats_;
};

/// Returns true if `error` means that the step is damaged, or was removed or replaced after it was
/// listed.
bool is_damage(const Error& error) noexcept;

}  // namespace tenfold::checkpoint

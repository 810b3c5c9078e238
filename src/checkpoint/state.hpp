#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <tenfold/checkpoint_manager.hpp>
#include <tenfold/sharded_writer.hpp>

#include "checkpoint/directory.hpp"
#include "checkpoint/entries.hpp"
#include "checkpoint/retention.hpp"
#include "checkpoint/trash.hpp"
#include "formats/shared/commit.hpp"
#include "os/fs/directory.hpp"
#include "os/fs/lease.hpp"

namespace tenfold {

namespace detail {

/// Gives the other code in src/checkpoint access to the state of a manager.
struct CheckpointInternals {
  using State = CheckpointManager::State;

  static const std::shared_ptr<State>& state(const CheckpointManager& manager) {
    return manager.state_;
  }
};

}  // namespace detail

namespace checkpoint {

/// The entries of a step that are not replicated: entries of single ranks, and entries that all
/// ranks write together.
struct RanksPlan {
  std::int64_t world_size = 1;
  bool have_entries = false;    ///< true: each rank writes entries of its own
  std::uint64_t num_bytes = 0;  ///< bytes of the ranks' own entries
  /// Entries that the ranks write together. The bytes of their tensors are not read.
  TensorDict sharded{};
  std::vector<std::vector<ShardBox>> boxes{};  ///< the boxes of each entry of `sharded`
};

/// An entry that the processes write together.
struct ShardedEntry {
  PlannedEntry planned;
  ShardedWriter writer;
};

/// A save that is not published yet: a hidden folder that is being written.
struct PendingSave {
  PendingSave(const Path& path, CheckpointSaveOptions given)
      : options(std::move(given)), replacement(path, 0) {}

  CheckpointSaveOptions options;
  CheckpointInfo info;  ///< entries are added as they are written
  std::string folder_name;
  std::vector<PlannedEntry> plan;
  /// The highest step of the current lineage before this save; empty if there is none or this save
  /// replaces it. With share_unchanged, files that equal files of `previous` may become hard links
  /// to them.
  std::optional<Step> previous;
  bool is_previous_synced = false;
  /// The folder "ranks-<random>" in the hidden folder. The random name prevents a surviving process
  /// of an earlier job from writing into this save. Empty if no rank has entries.
  std::string ranks_name;
  detail::formats::FolderReplacement replacement;
  std::vector<ShardedEntry> sharded;  ///< their files are in `replacement`
};

using Internals = detail::CheckpointInternals;

}  // namespace checkpoint

/// The state of a manager. The caller must lock `mutex` for all members except those that may be
/// used during a save: `directory`, `options`, `reader`, require_step(), is_listed(), remember(),
/// set_metrics(), stats_of(), status(), prunable_bytes(), write_entries(), earlier_step() and
/// count_from(). `last_mutex` guards `last_step` and `last_save_time`.
struct CheckpointManager::State {
  State(Path path, CheckpointManagerOptions given);
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  /// Returns the directory. If this manager is not yet the writer, first creates the directory if
  /// it is missing, and acquires the writer's lease. Throws Error(io) (EBUSY) if there is another
  /// writer or the lease was lost, for example by a fork. Throws Error(io) (ESTALE) if the path no
  /// longer names the directory in which the lease was acquired.
  os::Directory& require_writer();
  /// Returns true if the directory does not exist and this manager is not the writer. Then there is
  /// nothing to remove, and a call of require_writer() would only create the directory.
  bool is_absent() const;
  void release_writer();

  /// Returns the step with the number `step`. If the step cannot be read, throws the error of
  /// reading it; if it is missing, throws Error(key_not_found) with the numbers of all steps.
  const checkpoint::Step& require_step(const checkpoint::Listing& listing, std::int64_t step) const;

  /// Lists the steps again. Returns true if `step` is among them and was not replaced by a later
  /// save. If `required`, throws like require_step() if there is no step with its number.
  bool is_listed(const checkpoint::Step& step, bool required);

  /// Begins a save, which write_entries() and publish() complete. The destructor of the PendingSave
  /// removes the hidden folder unless it was published.
  std::unique_ptr<checkpoint::PendingSave> begin_save(std::int64_t step, const TensorDict& state,
                                                      const CheckpointSaveOptions& options,
                                                      const checkpoint::RanksPlan& ranks = {});
  void write_entries(checkpoint::PendingSave& save) const;
  /// Opens the step with which a save shares unchanged files. Returns null if `options` disable
  /// sharing, `step` is empty, or the step was removed.
  std::unique_ptr<checkpoint::EarlierStep> earlier_step(const std::optional<checkpoint::Step>& step,
                                                        bool is_synced) const;
  Path publish(checkpoint::PendingSave& save);
  void continue_from(const RestoredCheckpoint& restored, bool is_other_run);
  void discard_after(std::int64_t step);
  void set_metrics(std::int64_t step, const std::map<std::string, double>& metrics);

  std::vector<CheckpointStatus> status();
  std::uint64_t prunable_bytes();
  std::vector<std::int64_t> prune();
  /// Moves a step to the trash. Returns false if the step is held.
  bool remove(os::Directory& directory, const checkpoint::Step& step);
  /// Returns hash_of_stats() of a step. Throws Error(file_not_found) if it was removed.
  std::uint64_t stats_of(const checkpoint::Step& step) const;
  /// Records the result of checking a step. `stats`: the result of stats_of() before the check. The
  /// record is ignored once stats_of() returns another result.
  void remember(const checkpoint::Step& step, std::uint64_t stats, bool is_whole);

  const Path directory;
  const CheckpointManagerOptions options;
  std::mutex mutex;
  checkpoint::DirectoryReader reader;
  checkpoint::Trash trash;
  /// Makes should_save() count steps from `step`, and seconds from the current time. Throws
  /// Error(invalid_argument) for a negative step.
  void count_from(std::int64_t step);

  std::mutex last_mutex;
  std::int64_t last_step = 0;  ///< the argument of the last count_from()
  std::chrono::steady_clock::time_point last_save_time = std::chrono::steady_clock::now();

 private:
  struct Checked {
    std::uint64_t stats = 0;  ///< the result of stats_of() before the check
    bool is_whole = false;
  };

  checkpoint::KnownSteps known_steps(const checkpoint::Listing& listing);
  std::vector<CheckpointRun> lineage_of(std::int64_t step, const checkpoint::Listing& listing);
  void clean_leftovers(os::Directory& folder);
  void require_space(const os::Directory& folder, std::uint64_t num_bytes);
  void warn_of_replaced(const checkpoint::Listing& listing, const checkpoint::Step& old) const;
  /// Warns that a save replaces a damaged step. Throws if the folder is not a step, or if a newer
  /// version wrote it.
  void require_replaceable(const checkpoint::UnreadableStep& old) const;
  void warn_of_unchanged(const checkpoint::Step& previous, const CheckpointInfo& info,
                         const std::set<std::string>& constant);
  void warn_of_no_metric(const CheckpointInfo& info);

  std::optional<os::Directory> writer_directory_;
  std::optional<os::Lease> lease_;
  std::string run_id_;  ///< empty before the first save after creation or a restore
  std::vector<CheckpointRun> ancestors_;  ///< the runs that this run continues, oldest first
  bool has_continued_ = false;
  std::optional<std::int64_t> last_saved_;  ///< the last step saved after the last restore
  std::mutex checked_mutex_;
  std::map<std::int64_t, Checked> checked_;  ///< the results of checks, by the step's seq
  std::set<std::string> warned_entries_;
  bool has_warned_of_metric_ = false;
};

}  // namespace tenfold

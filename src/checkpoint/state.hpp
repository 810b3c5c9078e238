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

/// Access to the parts of a manager's calls, for processes that save and restore together.
struct CheckpointInternals {
  using State = CheckpointManager::State;

  static const std::shared_ptr<State>& state(const CheckpointManager& manager) {
    return manager.state_;
  }
};

}  // namespace detail

namespace checkpoint {

/// What other processes add to a step.
struct RanksPlan {
  std::int64_t world_size = 1;
  bool have_entries = false;    ///< each rank writes entries of its own
  std::uint64_t num_bytes = 0;  ///< of these
  /// Entries that the processes write together: of their tensors only dtype and shape count.
  TensorDict sharded{};
  std::vector<std::vector<ShardBox>> boxes{};  ///< of each of `sharded`
};

/// An entry that the processes write together.
struct ShardedEntry {
  PlannedEntry planned;
  ShardedWriter writer;
};

/// A save between its beginning and its publication: a hidden folder that is being filled.
struct PendingSave {
  PendingSave(const Path& path, CheckpointSaveOptions given)
      : options(std::move(given)), replacement(path, 0) {}

  CheckpointSaveOptions options;
  CheckpointInfo info;  ///< entries are added as they are written
  std::string folder_name;
  std::vector<PlannedEntry> plan;
  std::optional<Step> previous;  ///< on the line, which unchanged entries are compared with
  bool is_previous_synced = false;
  /// "ranks-<random>" in the hidden folder, of no other save: what a process of a job that ended
  /// still writes arrives nowhere. Empty: no rank has entries.
  std::string ranks_name;
  detail::formats::FolderReplacement replacement;
  std::vector<ShardedEntry> sharded;  ///< laid out within `replacement`
};

using Internals = detail::CheckpointInternals;

}  // namespace checkpoint

/// What a manager remembers. The directory is the truth: nothing here is needed to read it.
/// `mutex` is held by the caller of all members but `reader`, require_step(), remember(),
/// set_metrics(), status(), prunable_bytes(), write_entries(), earlier_step() and count_from():
/// those go on during a save.
struct CheckpointManager::State {
  State(Path path, CheckpointManagerOptions given);
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  /// The directory, made if it is missing, with the lease of its writer.
  os::Directory& require_writer();
  void release_writer();

  /// Throws Error(key_not_found) listing the steps.
  const checkpoint::Step& require_step(const checkpoint::Listing& listing, std::int64_t step) const;

  /// The three parts of a save. What begin_save() gave removes its folder if it is not published.
  std::unique_ptr<checkpoint::PendingSave> begin_save(std::int64_t step, const TensorDict& state,
                                                      const CheckpointSaveOptions& options,
                                                      const checkpoint::RanksPlan& ranks = {});
  void write_entries(checkpoint::PendingSave& save) const;
  /// What a save of that step shares files with, by `options`; null: nothing.
  std::unique_ptr<checkpoint::EarlierStep> earlier_step(const std::optional<checkpoint::Step>& step,
                                                        bool is_synced) const;
  Path publish(checkpoint::PendingSave& save);
  void continue_from(const RestoredCheckpoint& restored, bool is_other_run);
  void discard_after(std::int64_t step);
  void set_metrics(std::int64_t step, const std::map<std::string, double>& metrics);

  std::vector<CheckpointStatus> status();
  std::uint64_t prunable_bytes();
  std::vector<std::int64_t> prune();
  /// Puts a step into the trash; false if somebody holds it.
  bool remove(os::Directory& directory, const checkpoint::Step& step);
  /// A step was checked.
  void remember(const checkpoint::Step& step, bool is_whole);

  const Path directory;
  const CheckpointManagerOptions options;
  std::mutex mutex;
  checkpoint::DirectoryReader reader;
  checkpoint::Trash trash;
  /// should_save() counts from this step, and from now.
  void count_from(std::int64_t step);

  std::mutex last_mutex;
  std::int64_t last_step = 0;  ///< saved or restored
  std::chrono::steady_clock::time_point last_save_time = std::chrono::steady_clock::now();

 private:
  checkpoint::KnownSteps known_steps(const checkpoint::Listing& listing);
  std::vector<CheckpointRun> lineage_of(std::int64_t step, const checkpoint::Listing& listing);
  void clean_leftovers(os::Directory& folder);
  void require_space(const os::Directory& folder, std::uint64_t num_bytes);
  void warn_of_replaced(const checkpoint::Listing& listing, const checkpoint::Step& old) const;
  void warn_of_unchanged(const checkpoint::Step& previous, const CheckpointInfo& info,
                         const std::set<std::string>& constant);
  void warn_of_no_metric(const CheckpointInfo& info);

  std::optional<os::Directory> writer_directory_;
  std::optional<os::Lease> lease_;
  std::string run_id_;                    ///< empty before the first save after a restore
  std::vector<CheckpointRun> ancestors_;  ///< of the run, oldest first
  bool has_continued_ = false;
  std::optional<std::int64_t> last_saved_;  ///< by run_id_
  std::mutex checked_mutex_;
  std::map<std::int64_t, bool> checked_;  ///< seq of a step -> it is whole
  std::set<std::string> warned_entries_;
  bool has_warned_of_metric_ = false;
};

}  // namespace tenfold

#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <tenfold/checkpoint_manager.hpp>

#include "checkpoint/directory.hpp"
#include "checkpoint/retention.hpp"
#include "checkpoint/trash.hpp"
#include "os/fs/directory.hpp"
#include "os/fs/lease.hpp"

namespace tenfold {

/// What a manager remembers. The directory is the truth: nothing here is needed to read it.
/// `mutex` is held by the caller of all members but `reader`, require_step(), find(), remember(),
/// set_metrics(), status(), prunable_bytes() and count_from(): those go on during a save.
struct CheckpointManager::State {
  State(Path path, CheckpointManagerOptions given);
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  /// The directory, made if it is missing, with the lease of its writer.
  os::Directory& require_writer();
  void release_writer();

  /// Throws Error(key_not_found) listing the steps.
  const checkpoint::Step& require_step(const checkpoint::Listing& listing, std::int64_t step) const;

  Path save(std::int64_t step, const TensorDict& state, const CheckpointSaveOptions& options);
  RestoredCheckpoint find(const CheckpointRestoreOptions& options);
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
  checkpoint::Knowledge knowledge(const checkpoint::Listing& listing);
  std::vector<CheckpointRun> lineage_of(std::int64_t step, const checkpoint::Listing& listing);
  void clean_leftovers(os::Directory& folder);
  void require_space(const os::Directory& folder, std::uint64_t num_bytes);
  void share(os::Directory& hidden, const checkpoint::Step& previous, const CheckpointInfo& info);
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

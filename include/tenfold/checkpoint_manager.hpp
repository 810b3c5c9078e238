#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <tenfold/io.hpp>
#include <tenfold/value.hpp>

namespace tenfold {

namespace detail {
struct CheckpointInternals;
}  // namespace detail

/// One entry of a step: a file or folder in the step's folder.
struct CheckpointEntry {
  std::string name;  ///< key in the saved state: "model"
  std::string path;  ///< path within the step's folder: "model.safetensors"
  /// The rank of the process whose entry this is, with files below `ranks/<rank>/`; nullopt: the
  /// entry belongs to all processes.
  std::optional<std::int64_t> rank{};
  std::string format;           ///< the format as probe() returns it; "json" for a JSON value
  bool is_bare = false;         ///< the entry is one tensor or value, stored under the key "value"
  std::uint64_t num_bytes = 0;  ///< total size of the entry's files
  std::string checksum;         ///< 16 hexadecimal digits: hash of the entry's checksums or bytes
};

/// A run in the lineage of a step: the consecutive saves that follow a start, a restore() or a
/// return to an earlier step.
struct CheckpointRun {
  std::string run_id;          ///< identifies the run
  std::int64_t last_step = 0;  ///< the last step of the run that belongs to the lineage
  /// Compares both members.
  bool operator==(const CheckpointRun&) const = default;
};

/// The content of `checkpoint.json`.
struct CheckpointInfo {
  std::int64_t step = 0;                  ///< the step's number
  std::int64_t seq = 0;                   ///< a counter of the saves in the directory, not a time
  std::vector<CheckpointRun> lineage;     ///< oldest run first; the last run saved this step
  std::string time;                       ///< the time of the save: UTC, ISO 8601
  std::map<std::string, double> metrics;  ///< the metrics of the step, by name
  Value extra;                            ///< the caller's data; null if there is none
  Value versions;                         ///< an object with "tenfold" and the caller's versions
  std::int64_t world_size = 1;            ///< number of processes that saved the step together
  std::vector<CheckpointEntry> entries;   ///< the entries of the saved state
  /// The time of the save, in nanoseconds since 1970 by the clock of the file system. Set only if
  /// set_metrics() has replaced `checkpoint.json` since the save; otherwise the modification time
  /// of `checkpoint.json` is the time of the save.
  std::optional<std::int64_t> saved_ns{};
};

/// Which value of a metric is the best.
enum class BestMode : std::uint8_t {
  min,  ///< the least
  max,  ///< the greatest
};

/// The checks before a step is restored.
enum class CheckpointCheck : std::uint8_t {
  full,       ///< every checksum
  structure,  ///< files, sizes, and the checksums of metadata; for entries of other formats than
              ///< safetensors and memmap, the checksum of the whole file
  none,       ///< no check
};

/// Options of CheckpointManager.
struct CheckpointManagerOptions {
  /// Number of newest steps of the current lineage (see CheckpointManager) to keep; steps known to
  /// be damaged do not count. Steps of other lineages are kept, unless they are known to be
  /// damaged. nullopt: all steps are kept.
  std::optional<std::int64_t> max_to_keep{};
  std::optional<std::int64_t> keep_every{};   ///< keeps steps that are multiples of this number
  std::string best{};                         ///< name of a metric; empty: no best steps
  BestMode best_mode = BestMode::min;         ///< which value of that metric is the best
  std::int64_t best_to_keep = 1;              ///< number of best steps to keep
  std::optional<std::int64_t> every_steps{};  ///< interval of should_save(), in steps
  std::optional<double> every_seconds{};      ///< interval of should_save(), in seconds
  /// Maps entry names and globs to "safetensors", "memmap", "tdz", "pt" or "npz". Exact names take
  /// precedence over globs, which are tried in the order of this list. Entries that match no name
  /// and no glob are stored as safetensors. Values that JSON can represent (no tuples,
  /// OrderedDicts, bytes, complex numbers or integer keys) are always stored as JSON.
  std::vector<std::pair<std::string, std::string>> formats{{"*", "safetensors"}};
  /// Stores a file as a hard link if the highest step of the current lineage (see
  /// CheckpointManager) has an equal file for the same entry. Compares each leaf of a memmap entry,
  /// and each file of other formats except JSON.
  bool share_unchanged = false;
  bool durable = true;  ///< fsync the files before save() returns
  int num_threads = 0;  ///< 0: TENFOLD_NUM_THREADS, or min(8, cores)
};

/// Options of CheckpointManager::save().
struct CheckpointSaveOptions {
  std::map<std::string, double> metrics{};  ///< the metrics of the step, by name
  Value extra{};                            ///< CheckpointInfo::extra
  Value versions{};                         ///< an object, merged into CheckpointInfo::versions
  bool force = false;                       ///< do not warn that an existing step is replaced
  /// Entries that may be unchanged since the previous step. Any other entry with tensors that is
  /// unchanged gives a warning, the first time only.
  std::set<std::string> constant{};
  Monitor* monitor = nullptr;  ///< observes the call
};

/// Options of CheckpointManager::restore(), find() and continue_from().
struct CheckpointRestoreOptions {
  /// nullopt: the newest undamaged step of the current lineage (see CheckpointManager).
  std::optional<std::int64_t> step{};
  /// The directory, or a step's folder, of another run; empty: the manager's directory.
  Path path{};
  CheckpointCheck check = CheckpointCheck::full;  ///< checks before the step is returned
  /// Remove all later steps except held ones. Cannot be combined with `path`.
  bool discard_later = false;
  Monitor* monitor = nullptr;  ///< observes the call
};

/// A damaged step that restore() or find() skipped.
struct SkippedCheckpoint {
  std::int64_t step = 0;  ///< the step's number
  std::string problem;    ///< description of the damage
};

/// The result of CheckpointManager::restore() and find().
struct RestoredCheckpoint {
  CheckpointInfo info;  ///< the content of `checkpoint.json`
  Path path;            ///< the step's folder
  /// A dict of all entries, opened lazily. In a step that several processes saved, entries of ranks
  /// other than 0 are omitted.
  TensorDict state;
  /// Newer steps that are damaged: steps of the same lineage (see CheckpointManager), and steps
  /// whose lineage is unknown because their `checkpoint.json` is missing or damaged.
  std::vector<SkippedCheckpoint> skipped;
};

/// A step, and the rules that keep it.
struct CheckpointStatus {
  CheckpointInfo info;                 ///< the content of `checkpoint.json`
  Path path;                           ///< the step's folder
  bool is_in_current_lineage = false;  ///< see CheckpointManager
  bool is_held = false;                ///< a process protects the step by hold()
  /// The rules that keep the step: "newest", "other lineage", "all", "every 100", "best loss",
  /// "held", "verified" (the newest step that this manager saved or verified). Empty: pruning
  /// removes the step.
  std::vector<std::string> kept_by;
};

/// The disk space that save() would need.
struct CheckpointEstimate {
  std::vector<std::pair<std::string, std::uint64_t>> entries;  ///< name and bytes of each entry
  std::uint64_t num_bytes = 0;                                 ///< bytes of all entries
  std::uint64_t free_bytes = 0;      ///< free bytes of the file system; 0 if unknown
  std::uint64_t prunable_bytes = 0;  ///< bytes of steps that no rule keeps now
};

/// Protects a step from being pruned or removed, also by other processes and hosts, until the last
/// copy of this handle is destroyed.
class TENFOLD_API CheckpointHold {
 public:
  /// Releases this handle, as its destructor does. The step stays protected by other copies.
  void release();

 private:
  friend class CheckpointManager;
  struct TENFOLD_LOCAL State;
  explicit CheckpointHold(std::shared_ptr<State> state) : state_(std::move(state)) {}

  std::shared_ptr<State> state_;
};

/// The checkpoints of a training: a directory with one folder per step.
///
///     tenfold::CheckpointManager manager("run", {.max_to_keep = 3, .best = "loss"});
///     auto state = tenfold::TensorDict::dict({{"model", tenfold::state_dict(net)}, {"epoch", 3}});
///     manager.save(500, state, {.metrics = {{"loss", 0.25}}});
///     tenfold::RestoredCheckpoint last = manager.restore();
///
/// A step's folder (`step_00000500/`) gets its name when it is complete, so a step is complete or
/// absent. The folder contains a file or folder for each entry of the state, and `checkpoint.json`,
/// which lists the entries. `cp -r` and `rsync` can copy the folder. A folder whose
/// `checkpoint.json` is missing, damaged or of a newer version does not count as a step: it is
/// never pruned, and a warning names it.
///
/// A *lineage* is a step and the steps that the training saved before it. restore() continues the
/// lineage of the step that it restores. After a return to an earlier step, later steps stay in the
/// directory but no longer belong to the current lineage, which is the lineage of the newest save.
/// If the checksum of a `checkpoint.json` does not match, the lineage of its step is unknown: the
/// step does not define the current lineage, its metrics do not count, and it is kept like a step
/// of another lineage. restore() checks it like a step of the current lineage, and skips it.
///
/// Only one manager at a time may save, prune and remove; readers need no lock. Steps that the
/// Python package saved from several processes are read, verified and pruned. restore() returns the
/// entries that belong to all ranks. Of the entries that belong to single ranks, it returns only
/// those of rank 0.
///
/// If a step's folder exists but its `checkpoint.json` cannot be read, functions that need the step
/// throw the error of reading it, such as Error(corrupt), instead of Error(key_not_found). verify()
/// reports the damage and does not throw.
///
/// A moved-from CheckpointManager can only be assigned or destroyed.
///
/// Thread safety: all members may be called from any thread.
class TENFOLD_API CheckpointManager {
 public:
  /// Opens `directory`, which need not exist. Throws Error(invalid_argument) for invalid options or
  /// an empty path, Error(io) (ENOTDIR) if `directory` is a file.
  explicit CheckpointManager(const Path& directory, CheckpointManagerOptions options = {});

  /// The absolute path of the directory.
  const Path& directory() const noexcept TENFOLD_LIFETIMEBOUND;

  /// True if a multiple of `every_steps` was reached or skipped since the last save or restore, if
  /// `every_seconds` have passed since then, or if neither option is set. Before the first save or
  /// restore, counts from step 0 and from the construction of the manager.
  bool should_save(std::int64_t step) const;
  /// Makes should_save() count from this step. save() does this, too. If save() runs on another
  /// thread, call begin_save() first: should_save() then counts from the step even before save()
  /// starts. Throws Error(invalid_argument) for a negative step.
  void begin_save(std::int64_t step);

  /// Saves `state` as a step, one entry per key, then prunes. An existing step is replaced
  /// atomically (RENAME_EXCHANGE), or, where the file system lacks this, by two renames. If a crash
  /// between the two renames leaves no step, the next listing of steps restores the old one. A step
  /// whose `checkpoint.json` is damaged or cannot be read is replaced, too. Returns the step's
  /// folder.
  ///
  /// Before writing any entry, throws Error(invalid_argument) for a negative step, and for the name
  /// of an entry or metric that is not UTF-8. Also throws it, naming the key, for a key that cannot
  /// be stored, such as one that is too long for the name of a file. Throws Error(unsupported),
  /// naming the key, for an entry that its format cannot hold. Also throws it for `extra` or
  /// `versions` that JSON cannot represent (such as NaN), that are nested too deeply, or that make
  /// `checkpoint.json` larger than 64 MiB.
  ///
  /// Throws an Error, and does not replace the step's folder, if the folder has no
  /// `checkpoint.json`, or one of a newer version or of another step. Throws Error(io) with ENOSPC,
  /// with EBUSY if another process or manager is the writer of the directory, or with ESTALE if the
  /// directory was moved. If save() throws and the directory did not exist before, a directory
  /// without steps may remain.
  Path save(std::int64_t step, const TensorDict& state, const CheckpointSaveOptions& options = {});

  /// Adds or replaces metrics of a step. Any process may call it. Throws Error(invalid_argument)
  /// for a name that is not UTF-8, Error(key_not_found) if the step does not exist, and
  /// Error(corrupt) if its `checkpoint.json` is damaged. Throws Error(io) (EBUSY) if other calls of
  /// set_metrics() hold the step's lock for 10 s.
  void set_metrics(std::int64_t step, const std::map<std::string, double>& metrics);

  /// Restores a step: finds it, checks it, and continues its lineage. Without `step`, takes the
  /// newest undamaged step of the current lineage, and warns of each newer step that it skips.
  /// Throws Error(file_not_found) if there is no step, Error(key_not_found) if the requested step
  /// does not exist. Throws Error(corrupt) if the requested step is damaged, or if all steps of the
  /// lineage are. Throws Error(unsupported) if the requested step, or every step, is of a newer
  /// version. Throws Error(invalid_argument) for `discard_later` with `path`. Throws Error(io), and
  /// skips nothing, if a system call fails for lack of descriptors or memory.
  RestoredCheckpoint restore(const CheckpointRestoreOptions& options = {});
  /// Finds and checks a step as restore() does, but does not continue its lineage; call
  /// continue_from() for that.
  RestoredCheckpoint find(const CheckpointRestoreOptions& options = {}) const;
  /// Continues the lineage of a step that find() returned for the same options. If the options have
  /// a `path`, the next save begins a new lineage. With `discard_later`, removes the later steps,
  /// warns of held steps, which it keeps, and throws as prune() does.
  void continue_from(const RestoredCheckpoint& restored, const CheckpointRestoreOptions& options);

  /// The highest step of the current lineage, or nullopt.
  std::optional<std::int64_t> latest_step() const;
  /// The steps of all lineages, ascending.
  std::vector<std::int64_t> all_steps() const;
  /// The steps that all_steps() omits because their `checkpoint.json` is missing, damaged or that
  /// of another step, ascending.
  std::vector<std::int64_t> unreadable_steps() const;
  /// The best step of all lineages by the metric `best` of the options, or nullopt if no step has a
  /// finite value of it. Warns if steps have metrics, but none has this one. Throws
  /// Error(invalid_argument) if the options name no metric.
  std::optional<std::int64_t> best_step() const;
  /// Returns every step with the rules that keep it, ascending.
  std::vector<CheckpointStatus> status() const;
  /// The content of the step's `checkpoint.json`. Throws Error(key_not_found) if the step does not
  /// exist.
  CheckpointInfo metadata(std::int64_t step) const;
  /// The text of the step's `checkpoint.json`. Throws Error(key_not_found) if the step does not
  /// exist.
  std::string metadata_json(std::int64_t step) const;
  /// The step's folder. Throws Error(key_not_found) if the step does not exist.
  Path path(std::int64_t step) const;
  /// Checks the files, their sizes, and every checksum of a step. Reports damage, also of the
  /// step's `checkpoint.json`. Throws Error(key_not_found) if the step does not exist, and
  /// Error(unsupported) if its `checkpoint.json` is of a newer version.
  VerifyReport verify(std::int64_t step, const VerifyOptions& options = {}) const;

  /// Removes the steps that no rule keeps. Returns their numbers. Throws Error(io) (EBUSY) if
  /// another process or manager writes to the directory, (ESTALE) if the directory was moved.
  std::vector<std::int64_t> prune();
  /// Removes a step. Throws Error(key_not_found) if the step does not exist, Error(io) (EBUSY) if
  /// it is held, and what prune() throws.
  void remove(std::int64_t step);
  /// Protects a step from being pruned or removed. Throws Error(key_not_found) if the step does not
  /// exist, and Error(io) (EBUSY) if it has 1,024 holds already.
  CheckpointHold hold(std::int64_t step);

  /// Converts the state of a step, or the part of it that `options` select, to `target`. If the
  /// keys select parts of only one entry and this entry is a node, that node becomes the root of
  /// `target`. So {"model"} gives a file in which the names of weights do not begin with "model.".
  /// Compares all checksums of the converted entries first, whatever ConvertOptions::verify is.
  /// Throws Error(key_not_found) if the step does not exist, Error(corrupt) for damage, and what
  /// convert() throws.
  ConvertReport export_step(std::int64_t step, const Path& target,
                            const ConvertOptions& options = {}) const;
  /// Saves a file or folder of any format as a step. The top-level keys of its tree become entries;
  /// a tree with tensors at the top becomes the entry "model". If the source is the folder of a
  /// step, the new step has the entries that restore() returns for it, and all checksums of the
  /// source are compared first. Throws what open(), restore() and save() throw.
  Path import_step(const Path& source, std::int64_t step,
                   const CheckpointSaveOptions& options = {});
  /// Estimates the disk space for a save of `state`. For an entry or a key that cannot be stored,
  /// throws what save() throws.
  CheckpointEstimate estimate(const TensorDict& state) const;

  /// Waits until the manager's deletion thread has deleted the files of pruned and removed steps.
  void wait();
  /// Calls wait(), then releases the directory for another writer.
  void close();

 private:
  friend struct detail::CheckpointInternals;
  struct TENFOLD_LOCAL State;
  std::shared_ptr<State> state_;
};

}  // namespace tenfold

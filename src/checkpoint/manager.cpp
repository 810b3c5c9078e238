#include <tenfold/checkpoint_manager.hpp>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <mutex>
#include <set>
#include <system_error>
#include <utility>

#include <tenfold/error.hpp>
#include <tenfold/inspect.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "checkpoint/directory.hpp"
#include "checkpoint/document.hpp"
#include "checkpoint/entries.hpp"
#include "checkpoint/restoration.hpp"
#include "checkpoint/retention.hpp"
#include "checkpoint/state.hpp"
#include "checkpoint/step.hpp"
#include "core/notes/notes.hpp"
#include "formats/shared/problem.hpp"
#include "io/convert.hpp"
#include "io/rename.hpp"
#include "os/fs/file.hpp"
#include "os/fs/free_space.hpp"
#include "os/fs/unreplaced.hpp"

namespace tenfold {
namespace {

using checkpoint::Listing;
using checkpoint::Step;

/// Returns a report of the problem if the document of the step is missing or damaged, otherwise
/// nullopt.
std::optional<VerifyReport> report_of_document(const Listing& listing, std::int64_t step) {
  if (listing.find(step) != nullptr) return std::nullopt;
  const checkpoint::UnreadableStep* found = listing.find_unreadable(step);
  if (found == nullptr) return std::nullopt;
  const ErrorCode code = found->problem.code();
  if (code != ErrorCode::corrupt && code != ErrorCode::file_not_found) return std::nullopt;
  VerifyReport report;
  report.problems.push_back(detail::formats::problem_of(found->problem));
  return report;
}

void require_positive(const std::optional<std::int64_t>& value, const std::string& name) {
  if (!value || *value >= 1) return;
  throw base::invalid_argument()
      .part("checkpoint manager: ", name)
      .expected("1 or more")
      .found(*value);
}

void check_options(const CheckpointManagerOptions& options) {
  require_positive(options.max_to_keep, "max_to_keep");
  require_positive(options.keep_every, "keep_every");
  require_positive(options.every_steps, "every_steps");
  require_positive(options.best_to_keep, "best_to_keep");
  if (options.every_seconds && !(*options.every_seconds > 0)) {
    throw base::invalid_argument()
        .part("checkpoint manager: every_seconds")
        .expected("more than 0")
        .found(std::to_string(*options.every_seconds));
  }
  checkpoint::check_rules(options.formats);
}

/// Warns that only the entries of rank 0 are converted.
void warn_of_other_ranks(const Path& path, const CheckpointInfo& info, const TensorDict& taken) {
  for (const CheckpointEntry& entry : info.entries) {
    if (entry.rank != 0 || info.world_size == 1 || !taken.contains(entry.name)) continue;
    warn(path.string() + ": entry " + base::quote(entry.name) + ": only the entry of rank 0 of " +
         std::to_string(info.world_size) + " is converted, not those of the other ranks");
  }
}

/// Verifies the document of a step, and the entries that `taken` contains.
void require_intact_entries(const Path& path, CheckpointInfo info, const TensorDict& taken,
                            const ConvertOptions& options) {
  std::erase_if(info.entries, [&](const CheckpointEntry& entry) {
    return entry.rank.value_or(0) != 0 || !taken.contains(entry.name);
  });
  const VerifyReport report =
      checkpoint::verify_step(path, info, CheckpointCheck::full,
                              {.num_threads = options.num_threads, .monitor = options.monitor});
  if (!report.ok()) throw detail::formats::error_of(report);
}

/// Makes a path absolute, because the working directory may change before a save in the background.
Path absolute_path(const Path& path) {
  if (!path.empty()) return os::absolute(path);
  throw base::invalid_argument()
      .part("checkpoint manager")
      .expected("a path")
      .found("an empty one");
}

}  // namespace

CheckpointManager::CheckpointManager(const Path& directory, CheckpointManagerOptions options) {
  check_options(options);
  if (std::error_code ignored; std::filesystem::is_regular_file(directory, ignored)) {
    throw Error::io(ENOTDIR, directory.string()).expected("a directory of steps").found("a file");
  }
  state_ = std::make_shared<State>(absolute_path(directory), std::move(options));
}

const Path& CheckpointManager::directory() const noexcept { return state_->directory; }

bool CheckpointManager::should_save(std::int64_t step) const {
  const CheckpointManagerOptions& options = state_->options;
  if (!options.every_steps && !options.every_seconds) return true;
  // `mutex` is locked during a save, so `last_step` has a mutex of its own.
  const std::lock_guard lock(state_->last_mutex);
  // Return true if a multiple of every_steps was reached after the last save or restore, even if
  // `step` is not a multiple. So a loop need not call this function for every step.
  if (options.every_steps &&
      step / *options.every_steps > state_->last_step / *options.every_steps) {
    return true;
  }
  const std::chrono::duration<double> passed =
      std::chrono::steady_clock::now() - state_->last_save_time;
  return options.every_seconds && passed.count() >= *options.every_seconds;
}

void CheckpointManager::begin_save(std::int64_t step) { state_->count_from(step); }

Path CheckpointManager::save(std::int64_t step, const TensorDict& state,
                             const CheckpointSaveOptions& options) {
  begin_save(step);
  const std::lock_guard lock(state_->mutex);
  const auto save = state_->begin_save(step, state, options);
  state_->write_entries(*save);
  return state_->publish(*save);
}

void CheckpointManager::set_metrics(std::int64_t step,
                                    const std::map<std::string, double>& metrics) {
  state_->set_metrics(step, metrics);
}

RestoredCheckpoint CheckpointManager::restore(const CheckpointRestoreOptions& options) {
  RestoredCheckpoint restored = find(options);
  continue_from(restored, options);
  return restored;
}

RestoredCheckpoint CheckpointManager::find(const CheckpointRestoreOptions& options) const {
  for (int num_reads = 0; num_reads < os::kMaxReads; ++num_reads) {
    checkpoint::Restoration restoration(*this, options);
    bool is_current = true;
    for (const Step& step : restoration.candidates()) {
      try {
        return restoration.open(step, options.check, {}, options.monitor);
      } catch (const Error& error) {
        if (!checkpoint::is_damage(error)) throw;
        is_current = restoration.skip(step, error, true);
      }
      if (!is_current) break;
    }
    if (is_current) restoration.fail();
  }
  os::throw_replaced_always(directory());
}

void CheckpointManager::continue_from(const RestoredCheckpoint& restored,
                                      const CheckpointRestoreOptions& options) {
  const std::lock_guard lock(state_->mutex);
  state_->continue_from(restored, !options.path.empty());
  if (options.discard_later) state_->discard_after(restored.info.step);
}

std::optional<std::int64_t> CheckpointManager::latest_step() const {
  const Listing listing = state_->reader.list();
  const Step* latest = listing.latest();
  return latest == nullptr ? std::nullopt : std::optional(latest->info.step);
}

std::vector<std::int64_t> CheckpointManager::all_steps() const {
  std::vector<std::int64_t> steps;
  const Listing listing = state_->reader.list();
  for (const Step& step : listing.steps()) steps.push_back(step.info.step);
  return steps;
}

std::vector<std::int64_t> CheckpointManager::unreadable_steps() const {
  std::set<std::int64_t> steps;
  const Listing listing = state_->reader.list();
  for (const checkpoint::UnreadableStep& found : listing.unreadable()) {
    if (report_of_document(listing, found.step)) steps.insert(found.step);
  }
  return {steps.begin(), steps.end()};
}

std::optional<std::int64_t> CheckpointManager::best_step() const {
  if (state_->options.best.empty()) {
    throw base::invalid_argument()
        .part("checkpoint manager: best step")
        .expected("the option `best`, which names a metric")
        .found("none");
  }
  const Listing listing = state_->reader.list();
  const auto steps =
      checkpoint::best_first(listing, state_->options.best, state_->options.best_mode);
  if (!steps.empty()) return steps.front()->info.step;
  std::set<std::string> names;
  for (const Step& step : listing.steps()) {
    for (const auto& [name, value] : step.info.metrics) names.insert(name);
  }
  if (!names.empty() && !names.contains(state_->options.best)) {
    std::string known;
    for (const std::string& name : names) known += (known.empty() ? "" : ", ") + base::quote(name);
    warn(directory().string() + ": metric " + base::quote(state_->options.best) +
         ": expected a metric of the steps (" + known + "), found no step with it");
  }
  return std::nullopt;
}

std::vector<CheckpointStatus> CheckpointManager::status() const { return state_->status(); }

CheckpointInfo CheckpointManager::metadata(std::int64_t step) const {
  const Listing listing = state_->reader.list();
  return state_->require_step(listing, step).info;
}

std::string CheckpointManager::metadata_json(std::int64_t step) const {
  const os::Directory folder = os::Directory::open(path(step));
  return checkpoint::read_document(folder);
}

Path CheckpointManager::path(std::int64_t step) const {
  const Listing listing = state_->reader.list();
  return state_->directory / state_->require_step(listing, step).folder_name;
}

VerifyReport CheckpointManager::verify(std::int64_t step, const VerifyOptions& options) const {
  for (int num_reads = 0; num_reads < os::kMaxReads; ++num_reads) {
    const Listing listing = state_->reader.list();
    if (std::optional<VerifyReport> report = report_of_document(listing, step)) {
      return *std::move(report);
    }
    const Step& found = state_->require_step(listing, step);
    try {
      const std::uint64_t stats = state_->stats_of(found);
      VerifyReport report = checkpoint::verify_step(state_->directory / found.folder_name,
                                                    found.info, CheckpointCheck::full, options);
      if (!report.ok() && !state_->is_listed(found, true)) continue;
      state_->remember(found, stats, report.ok());
      return report;
    } catch (const Error& error) {
      if (!checkpoint::is_damage(error) || state_->is_listed(found, true)) throw;
    }
  }
  os::throw_replaced_always(directory());
}

std::vector<std::int64_t> CheckpointManager::prune() {
  const std::lock_guard lock(state_->mutex);
  if (state_->is_absent()) return {};
  state_->require_writer();
  return state_->prune();
}

void CheckpointManager::remove(std::int64_t step) {
  const std::lock_guard lock(state_->mutex);
  if (state_->is_absent()) state_->require_step(state_->reader.list(), step);
  os::Directory& directory = state_->require_writer();
  const Listing listing = state_->reader.list();
  const Step& found = state_->require_step(listing, step);
  if (!state_->remove(directory, found)) {
    const std::string display = directory.display_of(found.folder_name);
    throw Error::io(EBUSY, display)
        .part("step ", step)
        .expected("no hold")
        .found("a hold")
        .remedy("release the hold first");
  }
  state_->trash.empty(directory);
}

ConvertReport CheckpointManager::export_step(std::int64_t step, const Path& target,
                                             const ConvertOptions& options) const {
  const Listing listing = state_->reader.list();
  const Step& found = state_->require_step(listing, step);
  const Path source = state_->directory / found.folder_name;
  refuse_inside(source, target);
  const detail::formats::Format& format = format_for_converting(target, options);
  TensorDict tree = checkpoint::open_state_lazily(source, found.info);
  tree = select(tree, options.keys, options.exclude);
  require_intact_entries(source, found.info, tree, options);
  warn_of_other_ranks(source, found.info, tree);
  if (options.keys.given() && tree.size() == 1) {
    const TensorDict::Item only = tree.get(tree.keys().front());
    if (const auto* node = std::get_if<TensorDict>(&only)) tree = *node;
  }
  require_renamed(tree, options.renamed);
  return convert_tree(std::move(tree), source.string(), format, target, options);
}

Path CheckpointManager::import_step(const Path& source, std::int64_t step,
                                    const CheckpointSaveOptions& options) {
  const Path path = absolute_path(source);
  const bool is_step = os::exists(path / checkpoint::kDocumentName);
  TensorDict tree;
  if (is_step) {
    const RestoredCheckpoint found = find({.path = path, .monitor = options.monitor});
    warn_of_other_ranks(path, found.info, found.state);
    tree = found.state;
  } else {
    tree = open(path);
  }
  bool has_tensors = false;
  tree.for_each([&](const std::string&, const TensorDict::Item& item) {
    has_tensors = has_tensors || std::holds_alternative<Leaf>(item);
  });
  if (has_tensors && !is_step) {
    NodeInfo dict;
    dict.kind = NodeKind::dict;
    TensorDict state(dict);
    state.set("model", std::move(tree));
    tree = std::move(state);
  }
  CheckpointSaveOptions quiet = options;
  // Imported entries may be equal to those of the previous step: do not warn about them.
  for (const std::string& name : tree.keys()) quiet.constant.insert(name);
  return save(step, tree, quiet);
}

CheckpointEstimate CheckpointManager::estimate(const TensorDict& state) const {
  CheckpointEstimate estimate;
  for (const checkpoint::PlannedEntry& planned :
       checkpoint::plan_entries(state, state_->options.formats, state_->directory.string())) {
    estimate.entries.emplace_back(planned.entry.name, planned.num_bytes);
    estimate.num_bytes += planned.num_bytes;
  }
  Path existing = state_->directory;
  while (!os::exists(existing) && existing.has_relative_path()) existing = existing.parent_path();
  estimate.free_bytes = os::free_space(os::Directory::open(existing).fd()).free_bytes;
  estimate.prunable_bytes = state_->prunable_bytes();
  return estimate;
}

void CheckpointManager::wait() {
  const std::lock_guard lock(state_->mutex);
  state_->trash.wait();
}

void CheckpointManager::close() {
  const std::lock_guard lock(state_->mutex);
  state_->trash.wait();
  state_->release_writer();
}

}  // namespace tenfold

#include "checkpoint/state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <random>
#include <span>
#include <thread>
#include <utility>

#include <tenfold/error.hpp>
#include <tenfold/version.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "checkpoint/document.hpp"
#include "checkpoint/entries.hpp"
#include "checkpoint/step.hpp"
#include "core/notes/notes.hpp"
#include "formats/shared/commit.hpp"
#include "formats/shared/problem.hpp"
#include "io/tree.hpp"
#include "os/fs/file.hpp"
#include "os/fs/free_space.hpp"

namespace tenfold {

using namespace detail;
namespace {

using checkpoint::Listing;
using checkpoint::Step;

constexpr std::string_view kLeaseName = ".writer.tenfold-lease";
constexpr std::string_view kHoldPrefix = ".hold-";
constexpr std::string_view kLeaseSuffix = ".tenfold-lease";
constexpr int kMaxHolds = 1024;
/// The number of seq values that a save skips if the document of a step is damaged or cannot be
/// read, because the seq of this step is then unknown. If the document is repaired or becomes
/// readable later, the save must still have the highest seq. Otherwise, the current lineage would
/// be that of this older step, and restore() would not return the save.
constexpr std::int64_t kSkippedSeqs = 1'000'000;
constexpr std::chrono::seconds kMetricsPatience{10};
constexpr std::chrono::milliseconds kMetricsPoll{5};

std::string hold_name(const std::string& folder_name, int number) {
  return std::string(kHoldPrefix) + folder_name + "-" + std::to_string(number) +
         std::string(kLeaseSuffix);
}

/// Returns the name of the folder that the hold `name` protects, or nullopt if `name` is not the
/// name of a hold.
std::optional<std::string> held_folder(std::string_view name) {
  if (!name.starts_with(kHoldPrefix) || !name.ends_with(kLeaseSuffix)) return std::nullopt;
  name.remove_prefix(kHoldPrefix.size());
  const std::size_t dash = name.rfind('-', name.size() - kLeaseSuffix.size());
  if (dash == std::string_view::npos) return std::nullopt;
  return std::string(name.substr(0, dash));
}

bool is_held(const os::Directory& folder, const std::string& folder_name) {
  return std::ranges::any_of(folder.list(), [&](const std::string& name) {
    return held_folder(name) == folder_name && os::is_leased(folder, name);
  });
}

std::string new_run_id() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

/// Returns the current time in UTC with milliseconds, in a form that datetime.fromisoformat() of
/// all supported Python versions parses.
std::string time_text() {
  namespace chrono = std::chrono;
  const auto now = chrono::floor<chrono::milliseconds>(chrono::system_clock::now());
  const auto day = chrono::floor<chrono::days>(now);
  const chrono::year_month_day date(day);
  const chrono::hh_mm_ss time(now - day);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}+00:00",
                     static_cast<int>(date.year()), static_cast<unsigned>(date.month()),
                     static_cast<unsigned>(date.day()), time.hours().count(),
                     time.minutes().count(), time.seconds().count(), time.subseconds().count());
}

void check_step(std::int64_t step) {
  if (step < 0) throw base::invalid_argument().part("step").expected("0 or more").found(step);
}

void require_json(std::string_view option, const Value& value) {
  if (!checkpoint::is_json(value)) {
    throw base::unsupported()
        .part(option)
        .expected("a value that JSON can represent (no tuples, integer keys or bytes)")
        .found("another value");
  }
  if (!checkpoint::is_finite(value)) {
    throw base::unsupported()
        .part(option)
        .expected("finite numbers, because JSON has no others")
        .found("NaN or an infinity")
        .remedy("store it as null or as a string");
  }
}

void require_utf8_names(const std::map<std::string, double>& metrics) {
  for (const auto& [name, value] : metrics) {
    if (base::is_utf8(name)) continue;
    throw base::invalid_argument()
        .part("metric ", base::quote(name))
        .expected("a name in UTF-8")
        .found("other bytes");
  }
}

Value versions_of(const CheckpointSaveOptions& options) {
  Value::Object versions;
  versions.members.emplace_back("tenfold", std::string(version()));
  if (const auto* more = options.versions.get_if<Value::Object>()) {
    for (const auto& member : more->members) {
      if (member.first != "tenfold") versions.members.push_back(member);
    }
  }
  return {std::move(versions)};
}

void write_new_file(const os::Directory& folder, const std::string& name, std::string_view text,
                    bool durable) {
  os::File file = os::File::create_at(folder, name);
  file.write_at(0, std::as_bytes(std::span(text)));
  if (durable) file.sync();
  file.close_written();
}

std::uint64_t bytes_of(const CheckpointInfo& info) {
  std::uint64_t total = 0;
  for (const CheckpointEntry& entry : info.entries) total += entry.num_bytes;
  return total;
}

/// Plans the entries of `state`, then those of `sharded`.
std::vector<checkpoint::PlannedEntry> plan_all(const TensorDict& state, const TensorDict& sharded,
                                               const checkpoint::FormatRules& rules,
                                               const Path& path) {
  if (sharded.size() == 0) return checkpoint::plan_entries(state, rules, path.string());
  TensorDict all = empty_like(state);
  const auto add = [&](const std::string& name, const TensorDict::Item& item) {
    all.set(name, item);
  };
  state.for_each(add);
  sharded.for_each(add);
  auto plan = checkpoint::plan_entries(all, rules, path.string());
  for (std::size_t i = state.size(); i < plan.size(); ++i) {
    const CheckpointEntry& entry = plan[i].entry;
    if (entry.format == "safetensors" || entry.format == "memmap") continue;
    throw base::invalid_argument(path / entry.path)
        .part("entry ", base::quote(entry.name), ": format")
        .expected("\"safetensors\" or \"memmap\", which several processes write together")
        .found(base::quote(entry.format));
  }
  return plan;
}

bool is_digits(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, base::is_digit);
}

}  // namespace

CheckpointManager::State::State(Path path, CheckpointManagerOptions given)
    : directory(std::move(path)), options(std::move(given)), reader(directory) {}

os::Directory& CheckpointManager::State::require_writer() {
  if (lease_) {
    if (!lease_->is_held()) {
      throw Error::io(EBUSY, directory.string())
          .expected("this manager to be the writer")
          .found(
              "that it no longer is: the process forked, or was stopped for so long that another "
              "process took over")
          .remedy("create a new manager");
    }
    // Steps are listed by path, but pruning removes steps from *writer_directory_. If the path
    // named another directory, pruning would remove the wrong steps.
    if (!writer_directory_->is_at(directory)) {
      throw Error::io(ESTALE, directory.string())
          .expected("the directory that this manager writes into")
          .found("none or another one")
          .remedy("create a new manager with the current path of the directory");
    }
    return *writer_directory_;
  }
  os::Parent parent = os::open_parent(directory, true);
  if (!parent.directory.entry_info(parent.name)) {
    try {
      parent.directory.create_directory(parent.name);
    } catch (const Error& error) {
      if (error.system_errno() != EEXIST) throw;  // Created by another process.
    }
    if (options.durable) parent.directory.sync();
  }
  os::Directory folder = os::Directory::open(directory);
  const std::string name(kLeaseName);
  std::optional<os::Lease> lease = os::Lease::try_acquire(folder, name);
  if (!lease) {
    const std::string holder = os::lease_holder(folder, name);
    throw Error::io(EBUSY, directory.string())
        .expected("no other writer")
        .found((holder.empty() ? "another writer" : holder))
        .remedy("close() its manager, or use another directory");
  }
  writer_directory_ = std::move(folder);
  lease_ = std::move(lease);
  clean_leftovers(*writer_directory_);
  return *writer_directory_;
}

bool CheckpointManager::State::is_absent() const { return !lease_ && !os::exists(directory); }

void CheckpointManager::State::count_from(std::int64_t step) {
  check_step(step);
  const std::lock_guard lock(last_mutex);
  last_step = step;
  last_save_time = std::chrono::steady_clock::now();
}

void CheckpointManager::State::release_writer() {
  lease_.reset();
  writer_directory_.reset();
}

/// Removes leftovers of crashed writers: unfinished saves, leases, partly removed steps.
void CheckpointManager::State::clean_leftovers(os::Directory& folder) {
  for (const std::string& name : folder.list()) {
    try {
      if (held_folder(name)) {
        // If the process that held the lease is dead, try_acquire() takes over the lease, and the
        // destructor of the returned Lease removes it.
        static_cast<void>(os::Lease::try_acquire(folder, name));
        continue;
      }
      const auto hidden = checkpoint::parse_hidden_name(name);
      if (!hidden || !hidden->rest.starts_with("tenfold-")) continue;
      std::string_view number = std::string_view(hidden->rest).substr(8);
      if (number.ends_with(".lease")) number.remove_suffix(6);
      if (!is_digits(number) || number.size() > 2) continue;
      const auto lease =
          formats::try_lease_slot(folder, hidden->folder_name, std::stoi(std::string(number)));
      if (lease) folder.remove_tree(formats::hidden_name(hidden->folder_name, std::string(number)));
    } catch (const Error&) {
      continue;  // Saves work with leftovers, too.
    }
  }
  trash.empty(folder);
}

const Step& CheckpointManager::State::require_step(const Listing& listing,
                                                   std::int64_t step) const {
  const Step* found = listing.find(step);
  if (found != nullptr) return *found;
  if (const auto* unreadable = listing.find_unreadable(step)) throw unreadable->problem;
  throw base::key_not_found(directory.string())
      .part("step ", step)
      .expected(listing.steps().empty() ? "a step in the directory, which has none"
                                        : "one of the steps " + listing.numbers())
      .found("no such step");
}

std::vector<CheckpointRun> CheckpointManager::State::lineage_of(std::int64_t step,
                                                                const Listing& listing) {
  if (!has_continued_ && !listing.steps().empty()) {
    warn(directory.string() +
         ": it contains steps of a run that this run does not continue: expected restore() before "
         "the first save, or an empty directory; the steps of the other run are kept");
  }
  has_continued_ = true;
  std::vector<CheckpointRun> lineage;
  // The new lineage contains only those steps of earlier runs that are before `step`.
  const auto add = [&](const CheckpointRun& run) {
    const std::int64_t last = std::min(run.last_step, step - 1);
    if (last >= 0) lineage.push_back({run.run_id, last});
  };
  std::ranges::for_each(ancestors_, add);
  const bool is_return = last_saved_ && step < *last_saved_;
  if (is_return) add({run_id_, *last_saved_});
  lineage.push_back({is_return || run_id_.empty() ? new_run_id() : run_id_, step});
  return lineage;
}

void CheckpointManager::State::require_space(const os::Directory& folder, std::uint64_t num_bytes) {
  try {
    os::require_free_space(folder.fd(), directory.string(), num_bytes);
  } catch (const Error& error) {
    std::uint64_t prunable = 0;
    try {
      prunable = prunable_bytes();
    } catch (const Error&) {
      throw error;  // not the error of the listing
    }
    throw Error(error).remedy("pruning would free ", base::human_bytes(prunable));
  }
}

void CheckpointManager::State::warn_of_replaced(const Listing& listing, const Step& old) const {
  const std::string text = (directory / old.folder_name).string() + ": step " +
                           std::to_string(old.info.step) + " is replaced";
  warn(listing.is_in_current_lineage(old) ? text
                                          : text + "; the newest save does not continue from it");
}

void CheckpointManager::State::require_replaceable(const checkpoint::UnreadableStep& old) const {
  if (old.is_step && old.problem.code() != ErrorCode::unsupported) {
    warn(std::string(old.problem.what()) + "; the new save replaces the step");
    return;
  }
  throw Error(old.problem).remedy("move the folder away, or save another step");
}

void CheckpointManager::State::warn_of_unchanged(const Step& previous, const CheckpointInfo& info,
                                                 const std::set<std::string>& constant) {
  for (const CheckpointEntry& entry : info.entries) {
    // An entry of one rank is usually the rank's position in its data, which may be unchanged.
    if (entry.rank || constant.contains(entry.name)) continue;
    const CheckpointEntry* old = checkpoint::entry_of(previous.info, entry.name, {});
    if (old == nullptr || old->format != entry.format || old->checksum != entry.checksum ||
        old->num_bytes != entry.num_bytes || !warned_entries_.insert(entry.name).second) {
      continue;
    }
    warn(directory.string() + ": entry " + base::quote(entry.name) + " of step " +
         std::to_string(info.step) + " has the same bytes as in step " +
         std::to_string(previous.info.step) + ": expected the training to change it");
  }
}

void CheckpointManager::State::warn_of_no_metric(const CheckpointInfo& info) {
  if (options.best.empty() || has_warned_of_metric_) return;
  const auto found = info.metrics.find(options.best);
  if (found == info.metrics.end()) {
    // set_metrics() may add the metric after a validation.
    if (info.metrics.empty()) return;
  } else if (std::isfinite(found->second)) {
    return;
  }
  has_warned_of_metric_ = true;
  warn(directory.string() + ": step " + std::to_string(info.step) + ": metric " +
       base::quote(options.best) + ": expected a finite number, found " +
       (found == info.metrics.end() ? "none" : fmt::format("{}", found->second)) +
       "; a step without a finite value is never the best one");
}

std::unique_ptr<checkpoint::PendingSave> CheckpointManager::State::begin_save(
    std::int64_t number, const TensorDict& state, const CheckpointSaveOptions& save_options,
    const checkpoint::RanksPlan& ranks) {
  check_step(number);
  require_utf8_names(save_options.metrics);
  require_json("extra", save_options.extra);
  require_json("versions", save_options.versions);
  os::Directory& folder = require_writer();
  Listing listing = reader.list();
  const Step* old = listing.find(number);
  const std::string name = old == nullptr ? checkpoint::step_folder_name(number) : old->folder_name;
  const Path path = directory / name;
  std::vector<checkpoint::PlannedEntry> plan =
      plan_all(state, ranks.sharded, options.formats, path);
  require_space(folder, checkpoint::bytes_of(plan) + ranks.num_bytes);
  if (old != nullptr && !save_options.force) warn_of_replaced(listing, *old);
  // An unreadable folder is replaced only if it has the name of the new step's folder. Unreadable
  // folders with other names of the same step, such as "step_5" instead of "step_00000005", remain.
  for (const checkpoint::UnreadableStep& unreadable : listing.unreadable()) {
    if (unreadable.folder_name == name) require_replaceable(unreadable);
  }

  auto save = std::make_unique<checkpoint::PendingSave>(path, save_options);
  save->folder_name = name;
  const auto first_sharded = plan.begin() + static_cast<std::ptrdiff_t>(state.size());
  std::vector<checkpoint::PlannedEntry> sharded(std::make_move_iterator(first_sharded),
                                                std::make_move_iterator(plan.end()));
  plan.erase(first_sharded, plan.end());
  save->plan = std::move(plan);
  CheckpointInfo& info = save->info;
  info.step = number;
  const Step* newest = listing.newest_save();
  info.seq = (newest == nullptr ? 0 : newest->info.seq) + 1;
  if (listing.has_unknown_seq()) info.seq += kSkippedSeqs;
  info.lineage = lineage_of(number, listing);
  info.time = time_text();
  info.metrics = save_options.metrics;
  info.extra = save_options.extra;
  info.versions = versions_of(save_options);
  info.world_size = ranks.world_size;
  // Throws now, not after all entries are written, if `extra` or `versions` cannot be stored.
  static_cast<void>(checkpoint::write_document(info));
  const Step* previous = newest == nullptr ? nullptr : listing.latest();
  if (previous != nullptr && previous->info.step != number) {
    save->previous = *previous;
    // Another run may have saved the previous step without fsync.
    save->is_previous_synced = options.durable && last_saved_ == previous->info.step;
  }
  if (ranks.have_entries) {
    save->ranks_name = std::string(checkpoint::kRanksName) + "-" + new_run_id();
    save->replacement.folder().create_directory(save->ranks_name);
  }
  for (std::size_t i = 0; i < sharded.size(); ++i) {
    const Path target = Path(save->replacement.folder().display()) / sharded[i].entry.path;
    ShardedWriter writer(target, sharded[i].tree, ranks.boxes.at(i), {.durable = options.durable});
    save->sharded.push_back({std::move(sharded[i]), std::move(writer)});
  }
  return save;
}

void CheckpointManager::State::write_entries(checkpoint::PendingSave& save) const {
  const auto earlier = earlier_step(save.previous, save.is_previous_synced);
  for (const checkpoint::PlannedEntry& planned : save.plan) {
    save.info.entries.push_back(checkpoint::write_entry(planned, save.replacement.folder(),
                                                        earlier.get(), options.durable,
                                                        options.num_threads, save.options.monitor));
  }
}

std::unique_ptr<checkpoint::EarlierStep> CheckpointManager::State::earlier_step(
    const std::optional<Step>& step, bool is_synced) const {
  if (!options.share_unchanged || !step) return nullptr;
  os::Directory folder =
      os::Directory::try_open_at(os::Directory::open(directory), step->folder_name);
  if (!folder.valid()) return nullptr;  // removed concurrently
  auto earlier = std::make_unique<checkpoint::EarlierStep>();
  earlier->folder = std::move(folder);
  earlier->info = step->info;
  // Prefer the recorded time to the modification time of the document, because set_metrics() writes
  // the document again.
  earlier->saved_ns = step->info.saved_ns.value_or(step->document.modified_ns);
  earlier->is_synced = is_synced;
  return earlier;
}

Path CheckpointManager::State::publish(checkpoint::PendingSave& save) {
  require_writer();
  const CheckpointInfo& info = save.info;
  const Path path = directory / save.folder_name;
  os::Directory& hidden = save.replacement.folder();
  if (!save.ranks_name.empty()) {
    hidden.rename(save.ranks_name, std::string(checkpoint::kRanksName));
    if (options.durable) os::Directory::open_at(hidden, std::string(checkpoint::kRanksName)).sync();
  }
  write_new_file(hidden, std::string(checkpoint::kDocumentName), checkpoint::write_document(info),
                 options.durable);
  const std::uint64_t stats = checkpoint::hash_of_stats(hidden, info);
  require_writer();  // the lease expires if the process is stopped for long during the writes
  save.replacement.publish(options.durable);
  // The next save extends this lineage, so the steps that it omits do not return to the lineage.
  ancestors_.assign(info.lineage.begin(), std::prev(info.lineage.end()));
  run_id_ = info.lineage.back().run_id;
  last_saved_ = info.step;
  remember({info, save.folder_name, {}}, stats, true);
  if (save.previous) {
    std::set<std::string> constant = save.options.constant;
    for (const checkpoint::PlannedEntry& planned : save.plan) {
      if (!planned.has_tensors) constant.insert(planned.entry.name);
    }
    warn_of_unchanged(*save.previous, info, constant);
  }
  warn_of_no_metric(info);
  try {
    prune();
  } catch (const Error& error) {
    warn(path.string() + ": saved; older steps cannot be pruned: " + error.what());
  }
  return path;
}

void CheckpointManager::State::continue_from(const RestoredCheckpoint& restored,
                                             bool is_other_run) {
  // The next save starts a new run, so steps after the restored step no longer belong to the
  // lineage.
  run_id_.clear();
  last_saved_.reset();
  ancestors_.clear();
  if (!is_other_run) ancestors_ = restored.info.lineage;
  has_continued_ = !is_other_run;
  count_from(restored.info.step);
}

void CheckpointManager::State::discard_after(std::int64_t step) {
  os::Directory& folder = require_writer();
  const Listing listing = reader.list();
  for (const Step& later : listing.steps()) {
    if (later.info.step <= step || remove(folder, later)) continue;
    warn((directory / later.folder_name).string() + ": step " + std::to_string(later.info.step) +
         " is not discarded, because it is held");
  }
  trash.empty(folder);
}

void CheckpointManager::State::set_metrics(std::int64_t number,
                                           const std::map<std::string, double>& metrics) {
  require_utf8_names(metrics);
  const Listing listing = reader.list();
  const std::string& name = require_step(listing, number).folder_name;
  // Open the step's folder once. If the step is pruned concurrently, writes through the descriptor
  // do not create files at the step's old path.
  os::Directory folder = os::Directory::open_at(os::Directory::open(directory), name);
  const std::string document(checkpoint::kDocumentName);
  const auto give_up = std::chrono::steady_clock::now() + kMetricsPatience;
  std::optional<os::Lease> lease;
  while (!(lease = formats::try_lease_slot(folder, document, 0))) {
    if (std::chrono::steady_clock::now() > give_up) {
      throw Error::io(EBUSY, folder.display_of(document))
          .expected("no other process that sets metrics")
          .found("another process that did not finish within 10 seconds");
    }
    std::this_thread::sleep_for(kMetricsPoll);
  }
  os::FileInfo file;
  const std::string text = checkpoint::read_document(folder, &file);
  CheckpointInfo info = checkpoint::parse_document(text, folder.display_of(document));
  // The new document gets a new checksum, which would hide damage of the old document.
  checkpoint::require_checksum(text, folder.display_of(document));
  if (!info.saved_ns) info.saved_ns = file.modified_ns;
  for (const auto& [metric, value] : metrics) info.metrics[metric] = value;
  const std::string hidden = formats::hidden_name(document, "0");
  folder.remove_tree(hidden);
  try {
    write_new_file(folder, hidden, checkpoint::write_document(info), options.durable);
    folder.rename(hidden, document);
  } catch (...) {
    folder.remove_tree(hidden);
    throw;
  }
  if (options.durable) folder.sync();
}

checkpoint::KnownSteps CheckpointManager::State::known_steps(const Listing& listing) {
  checkpoint::KnownSteps known;
  std::set<std::string> held;
  if (os::exists(directory)) {
    const os::Directory folder = os::Directory::open(directory);
    for (const std::string& name : folder.list()) {
      const auto of = held_folder(name);
      if (of && os::is_leased(folder, name)) held.insert(*of);
    }
  }
  std::map<std::int64_t, Checked> checked;
  {
    const std::lock_guard lock(checked_mutex_);
    checked = checked_;
  }
  for (auto step = listing.steps().rbegin(); step != listing.steps().rend(); ++step) {
    if (held.contains(step->folder_name)) known.held.insert(step->info.step);
    const auto found = checked.find(step->info.seq);
    if (found == checked.end()) continue;
    const bool is_whole = found->second.is_whole;
    // Only the newest unchanged complete step of the current lineage is needed. So do not call
    // stats_of() for complete steps of other lineages, or for those that are older than this step.
    if (is_whole && (known.newest_verified || !listing.is_in_current_lineage(*step))) continue;
    try {
      if (stats_of(*step) != found->second.stats) continue;
    } catch (const Error& error) {
      // The step was removed or replaced after it was listed, or cannot be read.
      if (formats::is_problem_of_files(error)) continue;
      throw;
    }
    if (is_whole) {
      known.newest_verified = step->info.step;
    } else {
      known.damaged.insert(step->info.step);
    }
  }
  return known;
}

std::vector<CheckpointStatus> CheckpointManager::State::status() {
  const Listing listing = reader.list();
  const checkpoint::KnownSteps known = known_steps(listing);
  const auto rules = checkpoint::kept_by(listing, options, known);
  std::vector<CheckpointStatus> all;
  for (std::size_t i = 0; i < listing.steps().size(); ++i) {
    const Step& step = listing.steps()[i];
    all.push_back({step.info, directory / step.folder_name, listing.is_in_current_lineage(step),
                   known.held.contains(step.info.step), rules[i]});
  }
  return all;
}

std::uint64_t CheckpointManager::State::prunable_bytes() {
  std::uint64_t total = 0;
  for (const CheckpointStatus& step : status()) {
    if (step.kept_by.empty()) total += bytes_of(step.info);
  }
  return total;
}

std::vector<std::int64_t> CheckpointManager::State::prune() {
  std::vector<std::int64_t> removed;
  os::Directory& folder = *writer_directory_;
  if (options.max_to_keep) {
    const Listing listing = reader.list();
    const auto rules = checkpoint::kept_by(listing, options, known_steps(listing));
    for (std::size_t i = 0; i < rules.size(); ++i) {
      const Step& step = listing.steps()[i];
      if (rules[i].empty() && remove(folder, step)) removed.push_back(step.info.step);
    }
  }
  trash.empty(folder);
  return removed;
}

bool CheckpointManager::State::remove(os::Directory& folder, const Step& step) {
  if (is_held(folder, step.folder_name)) return false;
  const std::string trashed = trash.put(folder, step.folder_name);
  // Another process may have acquired a hold between the check and the rename. A process that
  // acquires a hold after the rename finds that the step no longer exists, and fails.
  if (!is_held(folder, step.folder_name)) return true;
  folder.rename(trashed, step.folder_name);
  return false;
}

bool CheckpointManager::State::is_listed(const Step& step, bool required) {
  const Listing listing = reader.list();
  const Step* found =
      required ? &require_step(listing, step.info.step) : listing.find(step.info.step);
  return found != nullptr && found->info.seq == step.info.seq;
}

std::uint64_t CheckpointManager::State::stats_of(const Step& step) const {
  return checkpoint::hash_of_stats(os::Directory::open(directory / step.folder_name), step.info);
}

void CheckpointManager::State::remember(const Step& step, std::uint64_t stats, bool is_whole) {
  const std::lock_guard lock(checked_mutex_);
  checked_[step.info.seq] = {stats, is_whole};
}

struct CheckpointHold::State {
  os::Directory folder;
  os::Lease lease;
};

void CheckpointHold::release() { state_.reset(); }

CheckpointHold CheckpointManager::hold(std::int64_t step) {
  const Listing listing = state_->reader.list();
  const std::string name = state_->require_step(listing, step).folder_name;
  auto held = std::make_shared<CheckpointHold::State>();
  held->folder = os::Directory::open(state_->directory);
  for (int number = 0; number < kMaxHolds; ++number) {
    auto lease = os::Lease::try_acquire(held->folder, hold_name(name, number));
    if (!lease) continue;
    held->lease = std::move(*lease);
    // Must follow the creation of the hold: see remove().
    state_->require_step(state_->reader.list(), step);
    return CheckpointHold(std::move(held));
  }
  throw Error::io(EBUSY, (state_->directory / name).string())
      .expected("fewer than ", kMaxHolds, " holds")
      .found(kMaxHolds)
      .remedy("release one");
}

}  // namespace tenfold

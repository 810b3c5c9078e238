#include "checkpoint/restoration.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <functional>
#include <iterator>
#include <ranges>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "checkpoint/document.hpp"
#include "core/notes/notes.hpp"
#include "formats/shared/problem.hpp"
#include "os/fs/directory.hpp"
#include "os/fs/file.hpp"

namespace tenfold::checkpoint {

using namespace detail;

namespace {

/// Reads the document of a step from the step's folder, which need not be in a manager's directory.
Step step_in(const Path& path) {
  const os::Directory folder = os::Directory::open(path);
  Step step;
  step.info = parse_document(read_document(folder, &step.document),
                             folder.display_of(std::string(kDocumentName)));
  return step;
}

/// Returns the number of steps, `kind` and the first problems, for example "2 that cannot be read:
/// step 7: <problem>; step 5: <problem>".
std::string steps_text(const std::vector<SkippedCheckpoint>& steps, std::string_view kind) {
  constexpr std::size_t kMaxProblems = 3;
  std::string text = std::to_string(steps.size()) + std::string(kind);
  for (std::size_t i = 0; i < std::min(steps.size(), kMaxProblems); ++i) {
    text +=
        (i == 0 ? ": step " : "; step ") + std::to_string(steps[i].step) + ": " + steps[i].problem;
  }
  if (steps.size() > kMaxProblems) text += "; ...";
  return text;
}

std::string damage_text(const std::vector<SkippedCheckpoint>& damaged) {
  return steps_text(damaged, damaged.size() == 1 ? " that is damaged" : " that are damaged");
}

/// Throws the error for a directory in which no step has a readable document.
[[noreturn]] void fail_without_steps(const Path& directory, const Listing& listing) {
  std::vector<SkippedCheckpoint> unreadable;
  std::string without_document;
  bool are_damaged = true;
  ErrorCode code = ErrorCode::file_not_found;
  for (const UnreadableStep& found : std::views::reverse(listing.unreadable())) {
    const Error& problem = found.problem;
    if (problem.code() == ErrorCode::file_not_found) {
      if (without_document.empty()) without_document = problem.what();
      continue;
    }
    if (unreadable.empty() || problem.code() == ErrorCode::corrupt) code = problem.code();
    // Other codes do not mean damage: permission may be denied, or the document may be of a newer
    // version.
    are_damaged = are_damaged && problem.code() == ErrorCode::corrupt;
    unreadable.push_back({found.step, problem.what()});
  }
  if (unreadable.empty()) {
    throw base::file_not_found(directory.string())
        .expected("a step to restore")
        .found("none", without_document.empty() ? "" : ": ", without_document);
  }
  throw base::fail(code, directory.string())
      .expected("a step to restore")
      .found(are_damaged ? damage_text(unreadable) : steps_text(unreadable, " that cannot be read"))
      .remedy(
          code == ErrorCode::corrupt
              ? "copy the folder of a step from a backup, or open the files in a step's folder one "
                "by one"
              : "");
}

}  // namespace

bool is_damage(const Error& error) noexcept {
  return error.code() == ErrorCode::corrupt || error.code() == ErrorCode::file_not_found ||
         error.system_errno() == ESTALE;
}

Restoration::Restoration(const CheckpointManager& manager, const CheckpointRestoreOptions& options)
    : state_(Internals::state(manager)),
      directory_(manager.directory()),
      is_given_(options.step.has_value()) {
  if (!options.path.empty()) {
    if (options.discard_later) {
      throw base::invalid_argument(options.path.string())
          .part("discard_later")
          .problem("it removes steps of the manager's own directory only")
          .expected("no path")
          .found("one");
    }
    directory_ = os::absolute(options.path);
    if (os::exists(directory_ / kDocumentName)) {
      state_.reset();
      is_given_ = true;
      candidates_.push_back(step_in(directory_));
      const std::int64_t found = candidates_.front().info.step;
      if (options.step && *options.step != found) {
        throw base::key_not_found(directory_.string())
            .expected("step ", *options.step)
            .found("step ", found);
      }
      return;
    }
    state_ = Internals::state(CheckpointManager(directory_));
  }
  const Listing listing = state_->reader.list();
  if (listing.steps().empty() && !options.step) {
    fail_without_steps(directory_, listing);
  }
  if (options.step) {
    candidates_.push_back(state_->require_step(listing, *options.step));
    return;
  }
  for (auto step = listing.steps().rbegin(); step != listing.steps().rend(); ++step) {
    // A step whose document has an invalid checksum may belong to the lineage. The check of the
    // step finds this damage.
    if (listing.is_in_current_lineage(*step) || !step->has_valid_document)
      candidates_.push_back(*step);
  }
  for (const UnreadableStep& found : listing.unreadable()) {
    if (!is_damage(found.problem) || listing.find(found.step) != nullptr) continue;
    without_document_.push_back({found.step, found.problem.what()});
  }
}

Path Restoration::path_of(const Step& step) const {
  return state_ ? directory_ / step.folder_name : directory_;
}

std::vector<SkippedCheckpoint> Restoration::skipped_after(std::int64_t step) const {
  std::vector<SkippedCheckpoint> all = skipped_;
  std::ranges::copy_if(without_document_, std::back_inserter(all),
                       [&](const SkippedCheckpoint& skipped) { return skipped.step > step; });
  std::ranges::stable_sort(all, std::ranges::greater(), &SkippedCheckpoint::step);
  return all;
}

RestoredCheckpoint Restoration::open(const Step& step, CheckpointCheck check, Rank rank,
                                     Monitor* monitor, const std::set<std::string>& copied) {
  const Path path = path_of(step);
  if (state_) stats_[step.info.seq] = state_->stats_of(step);
  // Without a valid document, the lineage of the step is unknown, so only a requested step is
  // restored without a check.
  if (check != CheckpointCheck::none || (!is_given_ && !step.has_valid_document)) {
    const VerifyReport report =
        verify_step(path, step.info, check, {.num_threads = 0, .monitor = monitor}, rank, copied);
    if (!report.ok()) throw formats::error_of(report);
    if (state_ && check == CheckpointCheck::full) {
      state_->remember(step, stats_[step.info.seq], true);
    }
  }
  RestoredCheckpoint restored;
  restored.state = open_state(path, step.info, own_rank(step.info, rank.rank));
  restored.info = step.info;
  restored.path = path;
  restored.skipped = skipped_after(step.info.step);
  return restored;
}

bool Restoration::skip(const Step& step, const Error& error, bool warns) {
  if (state_ && !state_->is_listed(step, is_given_)) return false;
  if (const auto stats = stats_.find(step.info.seq); state_ && stats != stats_.end()) {
    state_->remember(step, stats->second, false);
  }
  if (is_given_) throw Error(error).code(ErrorCode::corrupt);
  skipped_.push_back({step.info.step, error.what()});
  if (warns) {
    warn(directory_.string() + ": step " + std::to_string(step.info.step) +
         " is skipped, because it is damaged: " + error.what());
  }
  return true;
}

void Restoration::fail() const {
  throw base::corrupt(directory_.string())
      .expected("an undamaged step")
      .found(damage_text(skipped_after(-1)))
      .remedy(
          "copy the folder of a step from a backup, or restore a step by its number without "
          "checks");
}

}  // namespace tenfold::checkpoint

#include "checkpoint/directory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "checkpoint/document.hpp"
#include "core/notes/notes.hpp"
#include "formats/shared/commit.hpp"
#include "formats/shared/problem.hpp"
#include "os/fs/unreplaced.hpp"

namespace tenfold::checkpoint {

using namespace detail;

namespace {

constexpr std::string_view kStepPrefix = "step_";
constexpr std::string_view kHiddenMarker = ".tenfold-";

bool is_same(const os::FileInfo& a, const os::FileInfo& b) {
  return a.same_file(b) && a.modified_ns == b.modified_ns && a.size_bytes == b.size_bytes;
}

/// Restores the names of steps that a crashed save left under a hidden name. If the file system
/// lacks RENAME_EXCHANGE, a save needs two renames, and may crash between them.
void recover_steps(const Path& path, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const auto hidden = parse_hidden_name(name);
    if (!hidden || hidden->rest != "tenfold-old") continue;
    try {
      formats::recover_folder(path / hidden->folder_name);
    } catch (const Error&) {
      continue;  // The directory may be read-only for this process: a writer will rename the step.
    }
  }
}

}  // namespace

std::string step_folder_name(std::int64_t step) { return fmt::format("step_{:08}", step); }

std::optional<std::int64_t> step_of_folder_name(std::string_view name) noexcept {
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  const std::string_view digits = name.substr(kStepPrefix.size());
  if (digits.empty() || !std::ranges::all_of(digits, base::is_digit)) return std::nullopt;
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return number;
}

std::optional<HiddenName> parse_hidden_name(std::string_view name) {
  if (!name.starts_with('.')) return std::nullopt;
  const std::size_t marker = name.find(kHiddenMarker);
  if (marker == std::string_view::npos) return std::nullopt;
  const std::string_view folder = name.substr(1, marker - 1);
  if (!step_of_folder_name(folder)) return std::nullopt;
  return HiddenName{std::string(folder), std::string(name.substr(marker + 1))};
}

const Step* Listing::find(std::int64_t number) const noexcept {
  const auto found =
      std::ranges::lower_bound(steps_, number, {}, [](const Step& step) { return step.info.step; });
  return found == steps_.end() || found->info.step != number ? nullptr : &*found;
}

const UnreadableStep* Listing::find_unreadable(std::int64_t number) const noexcept {
  const auto found = std::ranges::find(unreadable_, number, &UnreadableStep::step);
  return found == unreadable_.end() ? nullptr : &*found;
}

bool Listing::has_unknown_seq() const noexcept {
  return !unreadable_.empty() || !std::ranges::all_of(steps_, &Step::has_valid_document);
}

const Step* Listing::newest_save() const noexcept {
  const Step* newest = nullptr;
  for (const Step& step : steps_) {
    if (!step.has_valid_document) continue;
    if (newest == nullptr || step.info.seq > newest->info.seq) newest = &step;
  }
  return newest;
}

bool Listing::is_in_current_lineage(const Step& step) const noexcept {
  const Step* newest = newest_save();
  if (newest == nullptr || !step.has_valid_document) return false;
  const CheckpointRun& own = step.info.lineage.back();
  return std::ranges::any_of(newest->info.lineage, [&](const CheckpointRun& run) {
    return run.run_id == own.run_id && own.last_step <= run.last_step;
  });
}

const Step* Listing::latest() const noexcept {
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    if (is_in_current_lineage(*step)) return &*step;
  }
  return nullptr;
}

std::string Listing::numbers() const {
  std::string text;
  for (const Step& step : steps_) {
    text += (text.empty() ? "" : ", ") + std::to_string(step.info.step);
  }
  return text;
}

std::string read_document(const os::Directory& folder, os::FileInfo* info) {
  const os::File file = os::File::open_read_at(folder, std::string(kDocumentName));
  if (info != nullptr) *info = file.info();
  return file.read_all(kMaxDocumentBytes);
}

Listing DirectoryReader::list() {
  const std::lock_guard lock(mutex_);
  for (int num_reads = 0; num_reads < os::kMaxReads; ++num_reads) {
    if (std::optional<Listing> listing = try_list()) return std::move(*listing);
  }
  os::throw_replaced_always(directory_);
}

std::optional<Listing> DirectoryReader::try_list() {
  if (!os::exists(directory_)) return Listing({});
  const os::Directory directory = os::Directory::open(directory_);
  std::vector<std::string> names = directory.list();
  recover_steps(directory_, names);
  std::ranges::sort(names);
  std::map<std::int64_t, Step> steps;
  std::map<std::string, Step> known;
  std::vector<UnreadableStep> unreadable;
  bool was_removed = false;
  for (const std::string& name : names) {
    if (!step_of_folder_name(name)) continue;
    std::optional<Step> step = read(directory, name, unreadable);
    if (!step) {
      // If the step was removed after it was listed, `names` may also lack the newer step that the
      // writer published before the removal.
      was_removed = was_removed || !directory.entry_info(name);
      continue;
    }
    known[name] = *step;
    const std::int64_t number = step->info.step;
    const auto [place, is_new] = steps.try_emplace(number, *step);
    if (is_new) continue;
    const bool is_newer = step->info.seq > place->second.info.seq;
    const std::string& kept = is_newer ? name : place->second.folder_name;
    const std::string& ignored = is_newer ? place->second.folder_name : name;
    warn_once(ignored, directory.display_of(ignored) + ": step " + std::to_string(number) +
                           " is a duplicate: " + base::quote(kept) +
                           " is used, because it is not older; remove the duplicate");
    if (is_newer) place->second = std::move(*step);
  }
  known_ = std::move(known);
  if (was_removed) return std::nullopt;
  std::vector<Step> sorted;
  for (auto& [number, step] : steps) sorted.push_back(std::move(step));
  std::ranges::stable_sort(unreadable, {}, &UnreadableStep::step);
  return Listing(std::move(sorted), std::move(unreadable));
}

std::optional<Step> DirectoryReader::read(const os::Directory& directory, const std::string& name,
                                          std::vector<UnreadableStep>& unreadable) {
  const std::string display = directory.display_of(name);
  const auto is_none = [&](const Error& problem, bool is_step) {
    unreadable.push_back({*step_of_folder_name(name), problem, is_step, name});
    warn_once(name, problem.what() + std::string(is_step ? "; the step is skipped and not pruned"
                                                         : "; it is not pruned"));
    return std::nullopt;
  };
  try {
    const os::Directory folder = os::Directory::try_open_at(directory, name);
    if (!folder.valid()) {
      const auto found = directory.entry_info(name);
      if (!found) return std::nullopt;  // pruned since it was listed
      warn_once(name, display + ": is not a step: expected a folder, found another kind of file");
      return std::nullopt;
    }
    const auto document = folder.entry_info(std::string(kDocumentName));
    if (!document) {
      // If the step was removed after it was listed, its document may have been deleted first.
      if (!directory.entry_info(name)) return std::nullopt;
      return is_none(
          base::file_not_found(display).problem("is not a step: it has no ", kDocumentName), false);
    }
    const auto known = known_.find(name);
    if (known != known_.end() && is_same(known->second.document, *document)) return known->second;
    Step step;
    step.folder_name = name;
    const std::string text = read_document(folder, &step.document);
    step.info = parse_document(text, folder.display_of(std::string(kDocumentName)));
    step.has_valid_document = has_valid_checksum(text);
    if (step.info.step != *step_of_folder_name(name)) {
      return is_none(base::corrupt(display).problem("is not a step: its ", kDocumentName,
                                                    " is that of step ", step.info.step),
                     false);
    }
    return step;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::file_not_found) return std::nullopt;
    // Other errors, such as too many open files, are no problem of the step. If the step were
    // listed as unreadable, a restart would skip it.
    if (!formats::is_problem_of_files(error)) throw;
    return is_none(error, true);
  }
}

void DirectoryReader::warn_once(const std::string& key, const std::string& message) {
  if (warned_.insert(key + '\0' + message).second) warn(message);
}

}  // namespace tenfold::checkpoint

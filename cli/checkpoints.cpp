#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <tenfold/checkpoint_manager.hpp>
#include <tenfold/error.hpp>

#include "commands.hpp"
#include "json.hpp"
#include "options.hpp"
#include "progress_bar.hpp"
#include "text.hpp"

namespace tenfold::cli {
namespace {

struct CheckpointsArguments {
  std::string path;
  std::optional<std::int64_t> keep;
  std::optional<std::int64_t> keep_every;
  std::string best;
  bool best_is_max = false;
  std::int64_t best_to_keep = 1;
  bool prune = false;
  bool verify = false;
  bool restore_check = false;
  bool json = false;
};

constexpr const char* kDocumentName = "checkpoint.json";

/// A step, as a row of the table.
struct StepRow {
  /// If `is_readable` is false, only the step number and `kept_by` are set.
  CheckpointStatus status;
  std::optional<VerifyReport> report{};  ///< nullopt if the step was not verified
  /// False if the step was removed, or if its `checkpoint.json` is missing or damaged.
  bool is_readable = true;
};

using Reports = std::map<std::int64_t, VerifyReport>;

std::uint64_t step_bytes(const CheckpointInfo& info) {
  std::uint64_t total = 0;
  for (const CheckpointEntry& entry : info.entries) total += entry.num_bytes;
  return total;
}

Value metrics_json(const CheckpointInfo& info) {
  Value::Object metrics;
  for (const auto& [name, value] : info.metrics) metrics.members.emplace_back(name, value);
  return {std::move(metrics)};
}

Value kept_json(const CheckpointStatus& status) {
  Value::List rules;
  for (const std::string& rule : status.kept_by) rules.items.emplace_back(rule);
  return {std::move(rules)};
}

void print_json(const std::vector<StepRow>& rows, Output& out) {
  Value::List steps;
  for (const StepRow& row : rows) {
    const CheckpointStatus& status = row.status;
    steps.items.push_back(object({{"step", status.info.step},
                                  {"path", row.is_readable ? Value(status.path.string()) : Value()},
                                  {"ok", row.report ? Value(row.report->ok()) : Value()},
                                  {"metrics", metrics_json(status.info)},
                                  {"time", status.info.time},
                                  {"bytes", json_number(step_bytes(status.info))},
                                  {"in_current_lineage", status.is_in_current_lineage},
                                  {"held", status.is_held},
                                  {"kept_by", kept_json(status)}}));
  }
  out.document(std::move(steps));
}

std::string joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += (all.empty() ? "" : ", ") + printable(text);
  return all;
}

std::string metrics_text(const CheckpointInfo& info) {
  std::vector<std::string> texts;
  for (const auto& [name, value] : info.metrics) {
    texts.push_back(name + " " + short_number(value));
  }
  return texts.empty() ? "-" : joined(texts);
}

/// Returns what keeps a step, such as "newest" for a retention rule, or "removed next" if nothing
/// does. If there are no rules, returns "held" for a step that a process holds, and "-" for any
/// other step. A kept step that is not in the current lineage (see CheckpointManager) gets the
/// suffix " (not in the current lineage)".
std::string status_text(const CheckpointStatus& status, bool has_rules) {
  if (status.kept_by.empty()) return "removed next";
  const std::string rules = has_rules ? joined(status.kept_by) : status.is_held ? "held" : "-";
  return status.is_in_current_lineage ? rules : rules + " (not in the current lineage)";
}

/// "-" for a step without a report, for example a step that was saved after the other steps had
/// been verified.
std::string verified_text(const StepRow& row) {
  if (!row.report) return "-";
  return row.report->ok() ? "ok" : "damaged";
}

void print_text(const std::vector<StepRow>& rows, bool has_rules, bool has_reports, Output& out) {
  std::vector<Table::Column> columns = {{"step", Table::Align::right},
                                        {"time"},
                                        {"size", Table::Align::right},
                                        {"metrics"},
                                        {"kept by"}};
  if (has_reports) columns.push_back({"verified"});
  Table table(std::move(columns));
  for (const StepRow& row : rows) {
    const CheckpointInfo& info = row.status.info;
    std::vector<std::string> cells = {std::to_string(info.step), "-", "-", "-", "-"};
    if (row.is_readable) {
      cells = {cells[0], printable(info.time.substr(0, 19)), human_bytes(step_bytes(info)),
               metrics_text(info), status_text(row.status, has_rules)};
    } else if (row.status.kept_by.front() == "removed") {
      cells[4] = "removed";
    }
    if (has_reports) cells.emplace_back(verified_text(row));
    table.add_row(std::move(cells));
  }
  table.print(out);
  for (const StepRow& row : rows) {
    if (!row.report) continue;
    for (const Problem& problem : row.report->problems) {
      std::string line = printable(problem.path) + ": ";
      if (!problem.part.empty()) line += printable(problem.part) + ": ";
      out.line(line + printable(problem.what));
    }
  }
}

/// Prints which step a restart would use. Returns the exit status: 1 if a step is damaged.
int check_restore(const CheckpointManager& manager, bool json, Output& out) {
  ProgressBar bar;
  try {
    const RestoredCheckpoint found = manager.find({.monitor = &bar});
    Value::List skipped;
    for (const SkippedCheckpoint& step : found.skipped) {
      skipped.items.push_back(object({{"step", step.step}, {"problem", step.problem}}));
    }
    if (json) {
      out.document(object({{"step", found.info.step},
                           {"path", found.path.string()},
                           {"skipped", std::move(skipped)}}));
    } else {
      for (const SkippedCheckpoint& step : found.skipped) {
        out.line("step " + std::to_string(step.step) + " is damaged: " + printable(step.problem));
      }
      out.line("a restart takes step " + std::to_string(found.info.step) + ": " +
               printable(found.path.string()));
    }
    return found.skipped.empty() ? 0 : 1;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::corrupt) throw;
    if (json) {
      out.document(object({{"step", Value()}, {"path", Value()}, {"problem", error.what()}}));
    } else {
      out.line(printable(error.what()));
    }
    return 1;
  }
}

/// Verifies the steps. The manager records which steps are damaged, and does not count these among
/// the newest steps to keep. A step that another process removes concurrently has no report.
Reports verify_all(const CheckpointManager& manager, const std::vector<std::int64_t>& steps) {
  Reports reports;
  ProgressBar bar;
  for (const std::int64_t step : steps) {
    try {
      reports[step] = manager.verify(step, {.monitor = &bar});
    } catch (const Error& error) {
      if (error.code() != ErrorCode::key_not_found) throw;
    }
  }
  return reports;
}

/// Verifies the newest step of the current lineage, and, while it is damaged, the next older one.
/// Pruning then keeps the undamaged step.
Reports verify_newest(const CheckpointManager& manager) {
  Reports reports;
  const std::vector<CheckpointStatus> steps = manager.status();
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    if (!step->is_in_current_lineage) continue;
    reports.merge(verify_all(manager, {step->info.step}));
    const auto report = reports.find(step->info.step);
    if (report != reports.end() && report->second.ok()) break;
  }
  return reports;
}

/// The row of a step that cannot be read or was removed. `kept_by` is "unreadable" or "removed".
StepRow unreadable_row(std::int64_t step, const VerifyReport& report, const char* kept_by) {
  StepRow row{.status = {}, .report = report, .is_readable = false};
  row.status.info.step = step;
  row.status.kept_by.emplace_back(kept_by);
  return row;
}

/// The steps in the folder, including unreadable ones, and the damaged steps that were removed
/// after they had been verified.
std::vector<StepRow> step_rows(const CheckpointManager& manager, Reports reports,
                               const Reports& unreadable) {
  std::vector<StepRow> rows;
  for (CheckpointStatus& status : manager.status()) {
    StepRow row{std::move(status)};
    const auto found = reports.extract(row.status.info.step);
    if (!found.empty()) row.report = std::move(found.mapped());
    rows.push_back(std::move(row));
  }
  for (const auto& [step, report] : reports) {
    if (!report.ok()) rows.push_back(unreadable_row(step, report, "removed"));
  }
  for (const auto& [step, report] : unreadable) {
    rows.push_back(unreadable_row(step, report, "unreadable"));
  }
  std::ranges::stable_sort(rows, {}, [](const StepRow& row) { return row.status.info.step; });
  return rows;
}

/// "no steps", and the first sub-folder that has steps.
std::string no_steps_text(const std::string& path) {
  std::set<std::filesystem::path> folders;
  std::error_code ignored;
  const std::filesystem::directory_iterator end;
  for (std::filesystem::directory_iterator entry(path, ignored); entry != end;
       entry.increment(ignored)) {
    if (entry->is_directory(ignored)) folders.insert(entry->path());
  }
  for (const std::filesystem::path& folder : folders) {
    if (CheckpointManager(folder).all_steps().empty()) continue;
    return "no steps; did you mean " + printable(folder.string()) + "?";
  }
  return "no steps";
}

void require_directory(const std::string& path) {
  std::error_code failure;
  const std::filesystem::file_status status = std::filesystem::status(path, failure);
  if (std::filesystem::exists(std::filesystem::path(path) / kDocumentName, failure)) {
    throw Error(ErrorCode::invalid_argument)
        .path(path)
        .expected("a directory of checkpoints")
        .found("the folder of one step")
        .remedy("use the folder above it");
  }
  if (std::filesystem::is_directory(status)) return;
  if (!std::filesystem::status_known(status)) {
    throw Error::io(failure.value(), path, "cannot be examined");
  }
  const bool exists = std::filesystem::exists(status);
  throw Error(exists ? ErrorCode::invalid_argument : ErrorCode::file_not_found)
      .path(path)
      .expected("a directory of checkpoints")
      .found(exists ? "a file" : "none");
}

int show_steps(const CheckpointsArguments& options, Output& out) {
  require_directory(options.path);
  CheckpointManagerOptions rules;
  rules.max_to_keep = options.keep;
  rules.keep_every = options.keep_every;
  rules.best = options.best;
  rules.best_mode = options.best_is_max ? BestMode::max : BestMode::min;
  rules.best_to_keep = options.best_to_keep;
  CheckpointManager manager(options.path, rules);
  if (options.restore_check) return check_restore(manager, options.json, out);
  Reports reports;
  Reports unreadable;
  if (options.verify) {
    reports = verify_all(manager, manager.all_steps());
    unreadable = verify_all(manager, manager.unreadable_steps());
  }
  if (options.prune) {
    if (!options.verify) reports = verify_newest(manager);
    const auto is_ok = [](const auto& report) { return report.second.ok(); };
    if (!reports.empty() && std::ranges::none_of(reports, is_ok)) {
      throw Error(ErrorCode::corrupt)
          .path(options.path)
          .expected("an undamaged step to keep")
          .found("only damaged ones", options.verify ? "" : " in the current lineage",
                 ", so no step is removed")
          .remedy("`--verify` lists the damage");
    }
    const auto removed = manager.prune();
    if (!options.json) out.line("removed " + counted(removed.size(), "step"));
  }
  const std::vector<StepRow> rows = step_rows(manager, std::move(reports), unreadable);
  manager.close();
  const bool has_reports =
      std::ranges::any_of(rows, [](const StepRow& row) { return !!row.report; });
  if (options.json) {
    print_json(rows, out);
  } else if (rows.empty()) {
    out.line(no_steps_text(options.path));
  } else {
    print_text(rows, options.keep.has_value(), has_reports, out);
  }
  const bool all_ok =
      std::ranges::all_of(rows, [](const StepRow& row) { return !row.report || row.report->ok(); });
  return all_ok ? 0 : 1;
}

}  // namespace

void add_checkpoints(CLI::App& app, Chosen& chosen) {
  auto options = std::make_shared<CheckpointsArguments>();
  CLI::App* command =
      app.add_subcommand("checkpoints", "List the steps of a training run, and what keeps each");
  command->add_option("path", options->path, "Directory of a CheckpointManager")->required();
  constexpr std::int64_t kMost = std::int64_t{1} << 62;
  command->add_option("--keep", options->keep, "Show what pruning to the newest N steps removes")
      ->transform(whole_number(1, kMost))
      ->type_name("N");
  command
      ->add_option("--keep-every", options->keep_every,
                   "Also keep the steps that are multiples of N")
      ->transform(whole_number(1, kMost))
      ->type_name("N")
      ->needs("--keep");
  command->add_option("--best", options->best, "Also keep the best step by this metric")
      ->type_name("METRIC")
      ->needs("--keep");
  command
      ->add_flag("--best-max", options->best_is_max, "The greatest value of the metric is the best")
      ->needs("--best");
  command->add_option("--best-to-keep", options->best_to_keep, "Keep the N best steps (default: 1)")
      ->transform(whole_number(1, kMost))
      ->type_name("N")
      ->needs("--best");
  auto* prune = command->add_flag(
      "--prune", options->prune,
      "Verify the newest steps until one is undamaged, then\nremove the steps that no rule keeps; "
      "exit 1 if any\nare damaged");
  prune->needs("--keep");
  auto* verify =
      command->add_flag("--verify", options->verify, "Check every checksum; exit 1 if damaged");
  command
      ->add_flag("--restore-check", options->restore_check,
                 "Print the step that a restart restores, and newer\ndamaged steps; "
                 "exit 1 if any are damaged")
      ->excludes(prune)
      ->excludes(verify);
  command->add_flag("--json", options->json, "One JSON document");
  command->callback([options, &chosen] {
    chosen.command = [options](Output& out) { return show_steps(*options, out); };
  });
}

}  // namespace tenfold::cli

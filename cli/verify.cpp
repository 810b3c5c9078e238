#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>

#include "commands.hpp"
#include "json.hpp"
#include "options.hpp"
#include "progress_bar.hpp"
#include "text.hpp"

namespace tenfold::cli {
namespace {

struct VerifyArguments {
  std::string path;
  int num_threads = 0;
  bool json = false;
};

/// Returns one line with the first kMost keys and, if there are more keys, how many more.
std::string first_of(const std::vector<std::string>& keys) {
  constexpr std::size_t kMost = 10;
  std::string line;
  for (std::size_t i = 0; i < std::min(kMost, keys.size()); ++i) {
    line += (i == 0 ? "" : ", ") + printable(keys[i]);
  }
  if (keys.size() > kMost) line += " and " + std::to_string(keys.size() - kMost) + " more";
  return line;
}

void print_json(const VerifyReport& report, Output& out) {
  Value::List problems;
  for (const Problem& problem : report.problems) {
    problems.items.push_back(
        object({{"path", problem.path}, {"part", problem.part}, {"what", problem.what}}));
  }
  out.document(object({{"ok", report.ok()},
                       {"problems", std::move(problems)},
                       {"leaves", json_number(report.num_leaves)},
                       {"bytes", json_number(report.num_bytes)},
                       {"checksums", json_number(report.num_checksums)},
                       {"unchecked", json_list(report.unchecked)}}));
}

void print_text(const VerifyReport& report, Output& out) {
  for (const Problem& problem : report.problems) {
    std::string line = printable(problem.path) + ": ";
    if (!problem.part.empty()) line += printable(problem.part) + ": ";
    out.line(line + printable(problem.what));
  }
  if (!report.unchecked.empty()) {
    out.line(
        out.paint(Style::dim, "without checksums, or not read: " + first_of(report.unchecked)));
  }
  if (!report.ok()) return;
  std::string summary = counted(report.num_leaves, "tensor") + ", " +
                        human_bytes(report.num_bytes) + ", " +
                        counted(report.num_checksums, "checksum");
  if (report.num_checksums == 0) summary += " (none stored: only the structure was checked)";
  out.line(out.paint(Style::good, "ok") + ": " + summary);
}

int check(const VerifyArguments& options, Output& out) {
  ProgressBar bar;
  VerifyOptions request;
  request.num_threads = options.num_threads;
  request.monitor = &bar;
  const VerifyReport report = verify(options.path, request);
  options.json ? print_json(report, out) : print_text(report, out);
  return report.ok() ? 0 : 1;
}

}  // namespace

void add_verify(CLI::App& app, Chosen& chosen) {
  auto options = std::make_shared<VerifyArguments>();
  CLI::App* command =
      app.add_subcommand("verify", "Check the structure and every checksum; exit 1 if damaged");
  command->add_option("path", options->path, "File or folder")->required();
  add_threads(*command, options->num_threads);
  command->add_flag("--json", options->json, "One JSON document");
  command->callback([options, &chosen] {
    chosen.command = [options](Output& out) { return check(*options, out); };
  });
}

}  // namespace tenfold::cli

#include <CLI/CLI.hpp>

#include <memory>

#include <tenfold/scan.hpp>

#include "commands.hpp"
#include "json.hpp"
#include "text.hpp"

namespace tenfold::cli {
namespace {

struct ScanArguments {
  std::string path;
  bool json = false;
};

void print_json(const ScanReport& report, Output& out) {
  Value::List findings;
  for (const ScanFinding& found : report.findings) {
    findings.items.push_back(object(
        {{"global", found.global}, {"risk", to_string(found.risk)}, {"where", found.where}}));
  }
  out.document(std::move(findings));
}

void print_text(const ScanReport& report, Output& out) {
  for (const ScanFinding& found : report.findings) {
    const std::string risk(to_string(found.risk));
    const bool is_safe = found.risk == ScanRisk::safe;
    out.line((is_safe ? risk : out.paint(Style::bad, risk)) + ": " + printable(found.global) +
             ", " + printable(found.where));
  }
  if (report.num_pickles == 0 && report.findings.empty()) {
    out.line("no pickle inside");
  } else if (report.safe()) {
    out.line(out.paint(Style::good, "ok") + ": " + counted(report.num_pickles, "pickle") + ", " +
             counted(report.findings.size(), "global") + ", all safe");
  }
}

int look(const ScanArguments& options, Output& out) {
  const ScanReport report = scan(options.path);
  options.json ? print_json(report, out) : print_text(report, out);
  return report.safe() ? 0 : 1;
}

}  // namespace

void add_scan(CLI::App& app, Chosen& chosen) {
  auto options = std::make_shared<ScanArguments>();
  CLI::App* command =
      app.add_subcommand("scan", "List what pickles would import; exit 1 if any of it is not safe");
  command->add_option("path", options->path, "torch.save file, pickle, archive, or folder of these")
      ->required();
  command->add_flag("--json", options->json, "One JSON document");
  command->callback([options, &chosen] {
    chosen.command = [options](Output& out) { return look(*options, out); };
  });
}

}  // namespace tenfold::cli

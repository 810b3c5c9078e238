#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <tenfold/diff.hpp>

#include <cmath>
#include <memory>

#include "commands.hpp"
#include "json.hpp"
#include "options.hpp"
#include "progress_bar.hpp"
#include "text.hpp"

namespace tenfold::cli {
namespace {

constexpr const char* kDiffHelp =
    "A and B may be in any two formats. Tensors and JSON values are matched by dotted\n"
    "name; values are equal if |a - b| <= atol + rtol * |b|, or if both are NaN.\n"
    "A different dtype, shape, JSON value or kind of node is a change at any\n"
    "tolerance.\n"
    "rel l2 is |a - b| / |a|, cosine is the cosine of the angle between a and b.\n"
    "Exit status: 0 the same, 1 different, 2 failure.";

/// Maximum width, on a terminal, of the text that describes a changed entry of one of the trees.
constexpr std::size_t kMaxTextWidth = 32;

struct DiffArguments {
  std::string a;
  std::string b;
  DiffOptions request;
  bool json = false;
};

void print_json(const DiffReport& report, Output& out) {
  Value::List changed;
  for (const Change& change : report.changed) {
    changed.items.push_back(object({{"key", change.key},
                                    {"kind", to_string(change.kind)},
                                    {"max_abs", change.max_abs},
                                    {"rel_l2", change.rel_l2},
                                    {"cosine", change.cosine}}));
  }
  out.document(object({{"same", report.same()},
                       {"added", json_list(report.added)},
                       {"removed", json_list(report.removed)},
                       {"changed", std::move(changed)}}));
}

/// Formats a cosine with nine digits, so that a small difference of direction is not shown as 1.
std::string cosine_text(double cosine) {
  return std::isnan(cosine) ? "-" : fmt::format("{:.9g}", cosine);
}

std::string shown_key(const std::string& key) { return key.empty() ? "(root)" : printable(key); }

std::string describe_change(const Change& change, const Output& out) {
  const auto shown = [&](const std::string& text) {
    return out.columns() == 0 ? printable(text) : cut_end(printable(text), kMaxTextWidth);
  };
  return change.a == change.b ? shown(change.a) : shown(change.a) + " → " + shown(change.b);
}

void print_text(const DiffReport& report, Output& out) {
  using Align = Table::Align;
  Table table({{"key"},
               {"change"},
               {"what", Align::left, Style::dtype},
               {"differ", Align::right},
               {"max abs", Align::right},
               {"rel l2", Align::right},
               {"cosine", Align::right}});
  for (const Change& change : report.changed) {
    const bool has_figures = change.num_different != 0;
    table.add_row({shown_key(change.key), to_string(change.kind), describe_change(change, out),
                   has_figures ? with_commas(change.num_different) : "-",
                   short_number(change.max_abs), short_number(change.rel_l2),
                   cosine_text(change.cosine)});
  }
  for (const std::string& key : report.removed) {
    table.add_row({shown_key(key), "removed", "", "", "", "", ""});
  }
  for (const std::string& key : report.added) {
    table.add_row({shown_key(key), "added", "", "", "", "", ""});
  }
  if (report.same()) {
    out.line(out.paint(Style::good, "same") + ": " + with_commas(report.num_leaves) +
             " tensors and values, " + human_bytes(report.num_bytes));
    return;
  }
  table.print(out);
  out.line(out.paint(Style::bad, "different") + ": " + with_commas(report.changed.size()) +
           " changed, " + with_commas(report.removed.size()) + " removed, " +
           with_commas(report.added.size()) + " added");
}

int compare(DiffArguments options, Output& out) {
  ProgressBar bar;
  options.request.monitor = &bar;
  const DiffReport report = diff(Path(options.a), Path(options.b), options.request);
  options.json ? print_json(report, out) : print_text(report, out);
  return report.same() ? 0 : 1;
}

}  // namespace

void add_diff(CLI::App& app, Chosen& chosen) {
  auto options = std::make_shared<DiffArguments>();
  CLI::App* command =
      app.add_subcommand("diff", "Compare two files or folders; exit 1 if they differ");
  command->footer(kDiffHelp);
  command->add_option("a", options->a, "File or folder")->required();
  command->add_option("b", options->b, "File or folder")->required();
  command->add_option("--rtol", options->request.rtol, "Relative tolerance (default: 0)");
  command->add_option("--atol", options->request.atol, "Absolute tolerance (default: 0)");
  add_threads(*command, options->request.num_threads);
  command->add_flag("--json", options->json, "One JSON document");
  command->callback([options, &chosen] {
    chosen.command = [options](Output& out) { return compare(*options, out); };
  });
}

}  // namespace tenfold::cli

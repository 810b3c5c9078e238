#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <tenfold/bench.hpp>

#include <cmath>
#include <memory>

#include "commands.hpp"
#include "json.hpp"
#include "options.hpp"
#include "progress_bar.hpp"
#include "text.hpp"

namespace tenfold::cli {
namespace {

constexpr const char* kBenchHelp =
    "read: tensors, sequentially; gather: random rows of the largest tensor.\n"
    "Cold is from disk, after the files of PATH were dropped from the page cache\n"
    "('-' if that is not possible); warm is from memory. The limit is bare pread on\n"
    "at most 512 of the files, of at most as many bytes in pieces of the same size.\n"
    "Each speed is the best of three runs. Speeds for only a few megabytes are\n"
    "mostly noise. Nothing is written.";

struct BenchArguments {
  std::string path;
  std::uint64_t max_megabytes = 1000;
  int num_threads = 0;
  bool json = false;
};

Value speed_json(const BenchPart& part) {
  return object({{"bytes", json_number(part.num_bytes)},
                 {"cold", part.speed.cold},
                 {"cold_limit", part.limit.cold},
                 {"warm", part.speed.warm},
                 {"warm_limit", part.limit.warm}});
}

void print_json(const BenchReport& report, Output& out) {
  out.document(object({{"threads", report.num_threads},
                       {"row_bytes", json_number(report.row_bytes)},
                       {"read", speed_json(report.read)},
                       {"gather", speed_json(report.gather)}}));
}

std::string speed_text(double speed) {
  if (std::isnan(speed)) return "-";
  return human_bytes(static_cast<std::uint64_t>(speed)) + "/s";
}

std::string share_text(double speed, double limit) {
  if (std::isnan(speed) || std::isnan(limit) || limit == 0) return "-";
  return fmt::format("{:.0f} %", 100 * speed / limit);
}

void print_text(const BenchReport& report, Output& out) {
  using Align = Table::Align;
  Table table({{"what"},
               {"bytes", Align::right},
               {"cold", Align::right},
               {"limit", Align::right},
               {"of limit", Align::right},
               {"warm", Align::right},
               {"limit", Align::right},
               {"of limit", Align::right}});
  const auto add = [&](const char* what, const BenchPart& part) {
    if (part.num_bytes == 0) return;
    table.add_row({what, human_bytes(part.num_bytes), speed_text(part.speed.cold),
                   speed_text(part.limit.cold), share_text(part.speed.cold, part.limit.cold),
                   speed_text(part.speed.warm), speed_text(part.limit.warm),
                   share_text(part.speed.warm, part.limit.warm)});
  };
  add("read", report.read);
  add("gather", report.gather);
  if (report.read.num_bytes == 0) {
    out.line("no tensors");
    return;
  }
  table.print(out);
  std::string summary = counted(static_cast<std::uint64_t>(report.num_threads), "thread");
  if (report.row_bytes != 0) summary += ", rows of " + human_bytes(report.row_bytes);
  out.line(out.paint(Style::dim, summary));
}

int measure(const BenchArguments& options, Output& out) {
  ProgressBar bar;
  BenchOptions request;
  request.max_bytes = options.max_megabytes * 1'000'000;
  request.num_threads = options.num_threads;
  request.monitor = &bar;
  const BenchReport report = bench(options.path, request);
  options.json ? print_json(report, out) : print_text(report, out);
  return 0;
}

}  // namespace

void add_bench(CLI::App& app, Chosen& chosen) {
  auto options = std::make_shared<BenchArguments>();
  CLI::App* command =
      app.add_subcommand("bench", "Measure reading speed against the limit of the disk");
  command->footer(kBenchHelp);
  command->add_option("path", options->path, "File or folder")->required();
  command
      ->add_option("--max-mb", options->max_megabytes,
                   "At most this many MB for read, and for gather\n(default: 1000)")
      ->transform(whole_number(1, 1'000'000'000));
  add_threads(*command, options->num_threads);
  command->add_flag("--json", options->json, "One JSON document");
  command->callback([options, &chosen] {
    chosen.command = [options](Output& out) { return measure(*options, out); };
  });
}

}  // namespace tenfold::cli

#include <CLI/CLI.hpp>
#include <tenfold/parts.hpp>

#include <memory>

#include "commands.hpp"
#include "json.hpp"
#include "options.hpp"
#include "progress_bar.hpp"
#include "text.hpp"

namespace tenfold::cli {
namespace {

constexpr const char* kCompactHelp =
    "PATH is a data set of parts (a folder with %parts.json). It is replaced when the\n"
    "new data set is complete and durable; until then the disk holds both.";

struct CompactArguments {
  std::string path;
  int num_threads = 0;
  bool json = false;
};

int run_compact(const CompactArguments& options, Output& out) {
  ProgressBar bar;
  CompactOptions request;
  request.num_threads = options.num_threads;
  request.monitor = &bar;
  const Dataset ds = compact(options.path, request);
  const auto rows = static_cast<std::uint64_t>(ds.size());
  if (options.json) {
    out.document(object({{"path", options.path}, {"rows", json_number(rows)}}));
  } else {
    out.line("wrote " + printable(options.path) + ": " + counted(rows, "row"));
  }
  return 0;
}

}  // namespace

void add_compact(CLI::App& app, Chosen& chosen) {
  auto options = std::make_shared<CompactArguments>();
  CLI::App* command =
      app.add_subcommand("compact", "Merge the parts of a data set into one folder");
  command->footer(kCompactHelp);
  command->add_option("path", options->path, "Folder of the data set")->required();
  add_threads(*command, options->num_threads);
  command->add_flag("--json", options->json, "One JSON document");
  command->callback([options, &chosen] {
    chosen.command = [options](Output& out) { return run_compact(*options, out); };
  });
}

}  // namespace tenfold::cli

#include <CLI/CLI.hpp>
#include <tenfold/error.hpp>
#include <tenfold/ingest.hpp>

#include <fmt/format.h>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <system_error>

#include "commands.hpp"
#include "json.hpp"
#include "options.hpp"
#include "progress_bar.hpp"
#include "terminal.hpp"
#include "text.hpp"

namespace tenfold::cli {
namespace {

constexpr const char* kIngestHelp =
    "SRC are JSON lines (.jsonl, .ndjson, .json), .csv and .tsv files, also as .gz,\n"
    ".zst, .bz2, .xz or in .zip, or globs of them. DST is replaced when the new data\n"
    "set is complete and durable. Types are inferred from the whole source, unless\n"
    "--schema gives them:\n"
    "  {\"columns\": {\"price\": {\"dtype\": \"float32\"}, \"name\": {\"dtype\": \"string\"}}}";

struct IngestArguments {
  std::vector<std::string> paths;
  std::string schema;
  std::vector<std::string> columns;
  std::string format;
  std::string separator;
  std::string on_error = "raise";
  int num_threads = 0;
  bool json = false;
};

OnError on_error_of(const std::string& name) {
  if (name == "raise") return OnError::raise;
  if (name == "skip") return OnError::skip;
  if (name == "collect") return OnError::collect;
  throw Error(ErrorCode::invalid_argument)
      .part("--on-error")
      .expected("raise, skip or collect")
      .found("\"", name, "\"");
}

Schema schema_of(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  int failure = file ? 0 : errno;
  if (std::error_code ignored; std::filesystem::is_directory(path, ignored)) failure = EISDIR;
  if (failure == ENOENT) {
    throw Error(ErrorCode::file_not_found).path(path).expected("a schema as JSON").found("no file");
  }
  if (failure != 0) throw Error::io(failure, path, "cannot be read");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  return Schema::from_json(text, path);
}

/// The total size of the files in the new data set. Ignores a file that cannot be read, because
/// another process may remove files concurrently.
std::uint64_t bytes_in(const std::string& folder) {
  std::uint64_t total = 0;
  std::error_code failure;
  std::filesystem::recursive_directory_iterator entry(folder, failure);
  for (; !failure && entry != std::filesystem::recursive_directory_iterator();
       entry.increment(failure)) {
    std::error_code removed;
    const bool is_file = entry->is_regular_file(removed);
    const std::uint64_t size_bytes = is_file ? entry->file_size(removed) : 0;
    if (!removed) total += size_bytes;
  }
  return total;
}

void tell(const IngestReport& report, const IngestArguments& options, Output& out) {
  const std::string& target = options.paths.back();
  out.line("wrote " + printable(target) + ": " + counted(report.num_rows, "row") + ", " +
           human_bytes(bytes_in(target)));
  for (const Promotion& promotion : report.promotions) {
    out.line("  " + printable(promotion.column) + ": " + promotion.from + " -> " + promotion.to);
  }
  for (const std::string& name : report.ignored) {
    out.line("  " + printable(name) + ": not in the schema, ignored");
  }
}

int run_ingest(const IngestArguments& options, Output& out) {
  if (options.paths.size() < 2) {
    throw Error(ErrorCode::invalid_argument).expected("SRC... DST").found("one path");
  }
  IngestOptions request;
  if (!options.schema.empty()) request.schema = schema_of(options.schema);
  request.columns = options.columns;
  request.format = source_format_from(options.format);
  request.separator = separator_from(options.separator);
  request.on_error = on_error_of(options.on_error);
  request.num_threads = options.num_threads;
  const std::vector<Path> sources(options.paths.begin(), options.paths.end() - 1);
  const IngestReport report = [&] {
    ProgressBar bar;  // erased before the message below is written
    request.monitor = &bar;
    return ingest(sources, options.paths.back(), request);
  }();
  if (report.num_bad_rows > 0) {
    const bool collects = request.on_error == OnError::collect;
    write_error(fmt::format(
        "tenfold: {} omitted: {} lists {}\n", counted(report.num_bad_rows, "row"),
        collects ? printable(options.paths.back()) + "/bad_rows.jsonl" : "--on-error collect",
        report.num_bad_rows == 1 ? "it" : "them"));
  }
  if (options.json) {
    Value::List promotions;
    for (const Promotion& promotion : report.promotions) {
      promotions.items.push_back(
          object({{"column", promotion.column}, {"from", promotion.from}, {"to", promotion.to}}));
    }
    Value::List ignored;
    for (const std::string& name : report.ignored) ignored.items.emplace_back(name);
    out.document(object({{"path", options.paths.back()},
                         {"rows", json_number(report.num_rows)},
                         {"bytes", json_number(bytes_in(options.paths.back()))},
                         {"bad_rows", json_number(report.num_bad_rows)},
                         {"promotions", std::move(promotions)},
                         {"ignored", std::move(ignored)}}));
  } else {
    tell(report, options, out);
  }
  return 0;
}

}  // namespace

void add_ingest(CLI::App& app, Chosen& chosen) {
  auto options = std::make_shared<IngestArguments>();
  CLI::App* command =
      app.add_subcommand("ingest", "Convert JSON lines or CSV files into a data set");
  command->footer(kIngestHelp);
  command->add_option("paths", options->paths, "SRC... DST: files to read, folder to write")
      ->required();
  command->add_option("--schema", options->schema, "Columns and types: a JSON file");
  command->add_option("--columns", options->columns, "Only this column; repeat for more")
      ->allow_extra_args(false);
  command->add_option("--format", options->format,
                      "jsonl, ndjson, json, csv or tsv, whatever the suffix");
  command->add_option("--separator", options->separator,
                      "CSV: field separator, such as ';' or '\\t'");
  command->add_option("--on-error", options->on_error, "raise, skip or collect bad rows");
  add_threads(*command, options->num_threads);
  command->add_flag("--json", options->json, "One JSON document");
  command->callback([options, &chosen] {
    chosen.command = [options](Output& out) { return run_ingest(*options, out); };
  });
}

}  // namespace tenfold::cli

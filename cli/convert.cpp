#include <CLI/CLI.hpp>
#include <tenfold/error.hpp>

#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>

#include "commands.hpp"
#include "json.hpp"
#include "options.hpp"
#include "progress_bar.hpp"
#include "rename_rules.hpp"
#include "text.hpp"

namespace tenfold::cli {
namespace {

constexpr const char* kConvertHelp =
    "SRC is streamed in bounded memory. DST is replaced when the new version is\n"
    "durable, and may be SRC itself. --keys, --exclude and --rename may be given more\n"
    "than once.";

struct ConvertArguments {
  std::string source;
  std::string target;
  std::string format;
  std::vector<std::string> keys;
  std::vector<std::string> exclude;
  std::vector<std::string> rename;
  std::string dtype;
  std::string shard_size;
  int num_threads = 0;
  bool no_checksums = false;
  bool verify = false;
  bool json = false;
};

/// Parses "5GB", "200 MB", "4GiB" or plain bytes.
std::uint64_t bytes_of(const std::string& text) {
  struct Unit {
    std::string_view name;
    double bytes;
  };
  constexpr std::array<Unit, 10> kUnits = {{{"", 1},
                                            {"B", 1},
                                            {"kB", 1e3},
                                            {"KB", 1e3},
                                            {"MB", 1e6},
                                            {"GB", 1e9},
                                            {"TB", 1e12},
                                            {"MiB", 1048576},
                                            {"GiB", 1073741824},
                                            {"TiB", 1099511627776}}};
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  for (const auto& [unit_name, unit_bytes] : kUnits) {
    const double size_bytes = number * unit_bytes;
    if (error == std::errc() && unit == unit_name && size_bytes >= 1 && size_bytes < 1e18) {
      return static_cast<std::uint64_t>(size_bytes);
    }
  }
  throw Error(ErrorCode::invalid_argument)
      .part("--shard-size")
      .expected("a size such as 5GB or 200MB")
      .found("\"", text, "\"");
}

std::optional<DType> dtype_of_text(const std::string& text) {
  if (text.empty()) return std::nullopt;
  if (const auto dtype = dtype_from_name(text)) return dtype;
  throw Error(ErrorCode::invalid_argument)
      .part("--dtype")
      .expected("a dtype such as float16, bfloat16 or float32")
      .found("\"", text, "\"");
}

void require_rules_apply(const RenameRules& rules, const ConvertArguments& options) {
  const TensorDict root = bare_tree(bare_value(open(options.source)));
  const TensorDict tree = select(root, key_paths(options.keys), key_paths(options.exclude));
  std::vector<std::string> names;
  tree.for_each_leaf(
      [&](const KeyPath& path, const TensorDict::Item&) { names.push_back(dotted(path)); });
  rules.require_each_applies(std::move(names));
}

int run_convert(const ConvertArguments& options, Output& out) {
  const RenameRules rules(options.rename);
  if (!rules.empty()) require_rules_apply(rules, options);
  ProgressBar bar;
  ConvertOptions request;
  request.format = options.format;
  request.keys = key_paths(options.keys);
  request.exclude = key_paths(options.exclude);
  if (!rules.empty()) request.rename = [&](const std::string& name) { return rules.apply(name); };
  request.dtype = dtype_of_text(options.dtype);
  request.checksums = !options.no_checksums;
  request.verify = options.verify;
  request.num_threads = options.num_threads;
  if (!options.shard_size.empty()) request.shard_size_bytes = bytes_of(options.shard_size);
  request.monitor = &bar;
  const ConvertReport report = convert(options.source, options.target, request);
  const std::string format = probe(options.target);
  if (options.json) {
    out.document(object({{"path", options.target},
                         {"leaves", json_number(report.num_leaves)},
                         {"bytes", json_number(report.num_bytes)},
                         {"format", format}}));
  } else {
    out.line("wrote " + printable(options.target) + ": " + counted(report.num_leaves, "tensor") +
             ", " + human_bytes(report.num_bytes) + ", as " + format +
             (std::filesystem::is_directory(options.target) ? " folder" : " file"));
  }
  return 0;
}

}  // namespace

void add_convert(CLI::App& app, Chosen& chosen) {
  auto options = std::make_shared<ConvertArguments>();
  CLI::App* command = app.add_subcommand("convert", "Write a file or folder in another format");
  command->footer(kConvertHelp);
  command->add_option("src", options->source, "File or folder to read")->required();
  command->add_option("dst", options->target, "File or folder to write")->required();
  command->add_option("--to", options->format,
                      "Format: memmap, snapshot, tdz, safetensors, npy, npz,\n"
                      "pt, consolidated (default: by suffix)");
  command->add_option("--keys", options->keys, "Only these entries: a dotted name or glob")
      ->allow_extra_args(false);
  command->add_option("--exclude", options->exclude, "Omit these entries: a dotted name or glob")
      ->allow_extra_args(false);
  command->add_option("--rename", options->rename, "OLD=NEW, for an entry and everything below it")
      ->allow_extra_args(false);
  command->add_option("--dtype", options->dtype, "Cast floating-point tensors to this dtype");
  command->add_option("--shard-size", options->shard_size,
                      "Greatest size of a shard of .safetensors.index.json\n"
                      "(default: 5GB)");
  add_threads(*command, options->num_threads);
  command->add_flag("--verify", options->verify, "Compare the checksums of SRC first");
  command->add_flag("--no-checksums", options->no_checksums, "Store no checksums");
  command->add_flag("--json", options->json, "One JSON document");
  command->callback([options, &chosen] {
    chosen.command = [options](Output& out) { return run_convert(*options, out); };
  });
}

}  // namespace tenfold::cli

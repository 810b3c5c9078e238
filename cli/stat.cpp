#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>

#include "columns.hpp"
#include "commands.hpp"
#include "json.hpp"
#include "progress_bar.hpp"
#include "text.hpp"

namespace tenfold::cli {
namespace {

constexpr const char* kStatHelp =
    "Statistics are computed in float64, in bounded memory. NaN and infinities are\n"
    "counted; min, max, mean and std ignore them. std divides by the number of\n"
    "finite values. A bool counts as 0 or 1, a complex number by its magnitude. In a\n"
    "data set, rows without a value count only as nulls; strings have no statistics.";

struct StatArguments {
  std::string path;
  std::vector<std::string> keys;
  bool json = false;
};

struct Measured {
  std::string key;
  Statistics figures;
  std::uint64_t nulls = 0;  ///< columns of a data set: number of rows without a value
};

/// Adds up the progress of all tensors for one bar.
class Sum : public Monitor {
 public:
  Sum(Monitor& bar, std::uint64_t total_bytes) : bar_(bar), total_bytes_(total_bytes) {}
  void report(std::uint64_t done_bytes, std::uint64_t, std::string_view what) override {
    bar_.report(finished_bytes_ + done_bytes, total_bytes_, what);
  }
  bool stop() override { return bar_.stop(); }
  void finish_tensor(std::uint64_t size_bytes) { finished_bytes_ += size_bytes; }

 private:
  Monitor& bar_;
  std::uint64_t total_bytes_;
  std::uint64_t finished_bytes_ = 0;
};

std::vector<Measured> rows_of(const TensorDict& tree) {
  std::vector<std::pair<std::string, Leaf>> leaves;
  std::uint64_t total_bytes = 0;
  tree.for_each_leaf([&](const KeyPath& path, const TensorDict::Item& item) {
    const auto* leaf = std::get_if<Leaf>(&item);
    if (leaf == nullptr) return;
    leaves.emplace_back(dotted(path), *leaf);
    total_bytes += leaf->nbytes();
  });
  ProgressBar bar;
  Sum sum(bar, total_bytes);
  std::vector<Measured> rows;
  for (const auto& [key, leaf] : leaves) {
    rows.push_back({key, statistics(leaf, 0, &sum)});
    sum.finish_tensor(leaf.nbytes());
  }
  return rows;
}

std::vector<Measured> rows_of(const Dataset& data, const std::vector<Column>& columns) {
  std::uint64_t total_bytes = 0;
  for (const Column& column : columns) total_bytes += column_bytes(data, column);
  ProgressBar bar;
  Sum sum(bar, total_bytes);
  std::vector<Measured> rows;
  for (const Column& column : columns) {
    const ColumnStatistics found = statistics_of(data, column, sum);
    rows.push_back({column.name(), found.figures, found.nulls});
    sum.finish_tensor(column_bytes(data, column));
  }
  return rows;
}

void print_stat_json(const std::vector<Measured>& rows, bool has_nulls, Output& out) {
  Value::List list;
  for (const auto& [key, figures, nulls] : rows) {
    std::vector<std::pair<std::string, Value>> members({{"key", key},
                                                        {"min", figures.min},
                                                        {"max", figures.max},
                                                        {"mean", figures.mean},
                                                        {"std", figures.std},
                                                        {"zeros", json_number(figures.zeros)},
                                                        {"nan", json_number(figures.nan)},
                                                        {"inf", json_number(figures.inf)}});
    if (has_nulls) members.emplace_back("nulls", json_number(nulls));
    list.items.push_back(object(std::move(members)));
  }
  out.document(std::move(list));
}

void print_stat_table(const std::vector<Measured>& rows, bool has_nulls, Output& out) {
  using Align = Table::Align;
  std::vector<Table::Column> columns({{has_nulls ? "column" : "key"},
                                      {"min", Align::right},
                                      {"max", Align::right},
                                      {"mean", Align::right},
                                      {"std", Align::right},
                                      {"zeros", Align::right},
                                      {"nan", Align::right},
                                      {"inf", Align::right}});
  if (has_nulls) columns.push_back({"nulls", Align::right});
  Table table(std::move(columns));
  for (const auto& [key, figures, nulls] : rows) {
    std::vector<std::string> cells = {printable(key),
                                      short_number(figures.min),
                                      short_number(figures.max),
                                      short_number(figures.mean),
                                      short_number(figures.std),
                                      with_commas(figures.zeros),
                                      with_commas(figures.nan),
                                      with_commas(figures.inf)};
    if (has_nulls) cells.push_back(with_commas(nulls));
    table.add_row(std::move(cells));
  }
  if (rows.empty()) {
    out.line("no tensors");
  } else {
    table.print(out);
  }
}

int stat(const StatArguments& options, Output& out) {
  const TensorDict root = named_by_file(open(options.path));
  const auto data = dataset_of(root);
  const std::vector<Measured> rows = data ? rows_of(*data, columns_of(*data, options.keys))
                                          : rows_of(select(root, key_paths(options.keys)));
  options.json ? print_stat_json(rows, data.has_value(), out)
               : print_stat_table(rows, data.has_value(), out);
  return 0;
}

}  // namespace

void add_stat(CLI::App& app, Chosen& chosen) {
  auto options = std::make_shared<StatArguments>();
  CLI::App* command =
      app.add_subcommand("stat", "Min, max, mean, std, zeros, NaN and infinities of tensors");
  command->footer(kStatHelp);
  command->add_option("path", options->path, "File or folder")->required();
  command->add_option("key", options->keys, "Only these entries: dotted names or globs");
  command->add_flag("--json", options->json, "One JSON document");
  command->callback([options, &chosen] {
    chosen.command = [options](Output& out) { return stat(*options, out); };
  });
}

}  // namespace tenfold::cli

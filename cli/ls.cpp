#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>

#include "columns.hpp"
#include "commands.hpp"
#include "interrupt.hpp"
#include "json.hpp"
#include "text.hpp"

namespace tenfold::cli {
namespace {

struct LsArguments {
  std::string path;
  std::vector<std::string> keys;
  bool json = false;
};

/// A row of the list: a tensor, a JSON value, or an entry that cannot be read.
struct Listed {
  KeyPath path;
  std::string dtype = "json";
  std::optional<Shape> shape;
  std::uint64_t size_bytes = 0;
  std::string problem;  ///< why the entry cannot be read; empty if it can
};

constexpr std::string_view kNotRead = "not read";
/// Maximum number of problems printed below the table; --json prints all.
constexpr std::uint64_t kMaxProblems = 10;

std::string_view describe(ErrorCode code) {
  if (code == ErrorCode::unsupported) return kNotRead;
  return code == ErrorCode::corrupt ? "damaged" : "unreadable";
}

/// Collects the entries below a node.
class Lister {
 public:
  void visit(const TensorDict& node) {
    for_each_readable(
        node,
        [&](const std::string& key, const TensorDict::Item& item) {
          throw_if_interrupted();
          path_.push_back(key);
          if (const auto* child = std::get_if<TensorDict>(&item)) {
            visit(*child);
          } else {
            add(item);
          }
          path_.pop_back();
        },
        [&](const std::string& key, const Error& error) {
          Listed row;
          row.path = path_;
          row.path.push_back(key);
          row.dtype = describe(error.code());
          row.problem = error.what();
          rows.push_back(std::move(row));
        });
  }

  std::vector<Listed> rows;

 private:
  void add(const TensorDict::Item& item) {
    Listed row;
    row.path = path_;
    if (const auto* leaf = std::get_if<Leaf>(&item)) {
      row.dtype = to_string(leaf->dtype());
      row.shape = leaf->shape();
      row.size_bytes = leaf->nbytes();
    } else {
      row.size_bytes = to_json(std::get<NonTensor>(item).value).size();
    }
    rows.push_back(std::move(row));
  }

  KeyPath path_;
};

void print_ls_json(const std::vector<Listed>& rows, Output& out) {
  Value::List list;
  for (const Listed& row : rows) {
    Value::List path;
    for (const std::string& key : row.path) path.items.emplace_back(key);
    const bool is_read = row.problem.empty();
    std::vector<std::pair<std::string, Value>> members = {
        {"key", dotted(row.path)},
        {"path", std::move(path)},
        {"dtype", row.dtype},
        {"shape", row.shape ? shape_json(*row.shape) : Value()},
        {"bytes", is_read ? json_number(row.size_bytes) : Value()}};
    if (!is_read) members.emplace_back("problem", row.problem);
    list.items.push_back(object(std::move(members)));
  }
  out.document(std::move(list));
}

void print_ls_table(const std::vector<Listed>& rows, Output& out) {
  Table table({{"key"},
               {"dtype", Table::Align::left, Style::dtype},
               {"shape"},
               {"bytes", Table::Align::right}});
  std::uint64_t num_tensors = 0;
  std::uint64_t num_unread = 0;
  std::uint64_t total_bytes = 0;
  for (const Listed& row : rows) {
    if (!row.problem.empty()) {
      ++num_unread;
      table.add_row({printable(dotted(row.path)), row.dtype, "-", "-"});
      continue;
    }
    table.add_row({printable(dotted(row.path)), row.dtype, row.shape ? shape_text(*row.shape) : "-",
                   with_commas(row.size_bytes)});
    if (!row.shape) continue;
    ++num_tensors;
    total_bytes += row.size_bytes;
  }
  if (!rows.empty()) table.print(out);
  std::string total = counted(num_tensors, "tensor") + ", " + human_bytes(total_bytes);
  const std::uint64_t num_values = rows.size() - num_tensors - num_unread;
  if (num_values != 0) total += ", " + counted(num_values, "JSON value");
  if (num_unread != 0) total += ", " + std::to_string(num_unread) + " not read";
  out.line(out.paint(Style::dim, total));
  std::uint64_t num_printed = 0;
  for (const Listed& row : rows) {
    if (row.problem.empty()) continue;
    if (num_printed++ == kMaxProblems) break;
    out.line(out.paint(Style::dim, printable(row.problem)));
  }
}

/// Lists the columns of a data set rather than its leaves.
void list_columns(const Dataset& data, const LsArguments& options, Output& out) {
  const std::vector<Column> columns = columns_of(data, options.keys);
  if (options.json) {
    Value::List list;
    for (const Column& column : columns) {
      Value::List path;
      for (const std::string& key : column.path) path.items.emplace_back(key);
      list.items.push_back(object({{"key", column.name()},
                                   {"path", std::move(path)},
                                   {"dtype", column.dtype_name()},
                                   {"shape", shape_json(data, column)},
                                   {"bytes", json_number(column_bytes(data, column))},
                                   {"nullable", column.nullable}}));
    }
    return out.document(std::move(list));
  }
  Table table({{"column"},
               {"dtype", Table::Align::left, Style::dtype},
               {"shape"},
               {"bytes", Table::Align::right}});
  std::uint64_t total_bytes = 0;
  for (const Column& column : columns) {
    const std::uint64_t bytes = column_bytes(data, column);
    total_bytes += bytes;
    table.add_row({printable(column.name()), type_text(column), shape_text(data, column),
                   with_commas(bytes)});
  }
  if (!columns.empty()) table.print(out);
  out.line(out.paint(Style::dim, counted(static_cast<std::uint64_t>(data.size()), "row") + ", " +
                                     counted(columns.size(), "column") + ", " +
                                     human_bytes(total_bytes)));
}

int ls(const LsArguments& options, Output& out) {
  const TensorDict root = named_by_file(open(options.path));
  if (const auto data = dataset_of(root)) {
    list_columns(*data, options, out);
    return 0;
  }
  const TensorDict tree = select(root, key_paths(options.keys));
  Lister lister;
  lister.visit(tree);
  options.json ? print_ls_json(lister.rows, out) : print_ls_table(lister.rows, out);
  const bool is_whole = std::ranges::all_of(
      lister.rows, [](const Listed& row) { return row.problem.empty() || row.dtype == kNotRead; });
  return is_whole ? 0 : 1;
}

}  // namespace

void add_ls(CLI::App& app, Chosen& chosen) {
  auto options = std::make_shared<LsArguments>();
  CLI::App* command =
      app.add_subcommand("ls", "List tensors, or the columns of a data set: dtype, shape, bytes");
  command->add_option("path", options->path, "File or folder")->required();
  command->add_option("key", options->keys, "Only these entries: dotted names or globs");
  command->add_flag("--json", options->json, "One JSON document");
  command->callback([options, &chosen] {
    chosen.command = [options](Output& out) { return ls(*options, out); };
  });
}

}  // namespace tenfold::cli

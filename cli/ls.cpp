#include <CLI/CLI.hpp>

#include <memory>

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

/// A tensor or JSON value of the list.
struct Listed {
  KeyPath path;
  std::string dtype = "json";
  std::optional<Shape> shape;
  std::uint64_t size_bytes = 0;
};

std::vector<Listed> rows_of(const TensorDict& tree) {
  std::vector<Listed> rows;
  tree.for_each_leaf([&](const KeyPath& path, const TensorDict::Item& item) {
    throw_if_interrupted();
    Listed row;
    row.path = path;
    if (const auto* leaf = std::get_if<Leaf>(&item)) {
      row.dtype = name(leaf->dtype());
      row.shape = leaf->shape();
      row.size_bytes = leaf->nbytes();
    } else {
      row.size_bytes = to_json(std::get<NonTensor>(item).value).size();
    }
    rows.push_back(std::move(row));
  });
  return rows;
}

void print_ls_json(const std::vector<Listed>& rows, Output& out) {
  Value::List list;
  for (const Listed& row : rows) {
    Value::List path;
    for (const std::string& key : row.path) path.items.emplace_back(key);
    list.items.push_back(object({{"key", dotted(row.path)},
                                 {"path", std::move(path)},
                                 {"dtype", row.dtype},
                                 {"shape", row.shape ? shape_json(*row.shape) : Value()},
                                 {"bytes", json_number(row.size_bytes)}}));
  }
  out.document(std::move(list));
}

void print_ls_table(const std::vector<Listed>& rows, Output& out) {
  Table table({{"key"},
               {"dtype", Table::Align::left, Style::dtype},
               {"shape"},
               {"bytes", Table::Align::right}});
  std::uint64_t num_tensors = 0;
  std::uint64_t total_bytes = 0;
  for (const Listed& row : rows) {
    table.add_row({printable(dotted(row.path)), row.dtype, row.shape ? shape_text(*row.shape) : "-",
                   with_commas(row.size_bytes)});
    if (!row.shape) continue;
    ++num_tensors;
    total_bytes += row.size_bytes;
  }
  if (!rows.empty()) table.print(out);
  std::string total = counted(num_tensors, "tensor") + ", " + human_bytes(total_bytes);
  if (num_tensors != rows.size()) total += ", " + counted(rows.size() - num_tensors, "JSON value");
  out.line(out.paint(Style::dim, total));
}

int ls(const LsArguments& options, Output& out) {
  const TensorDict tree = select(open(options.path), key_paths(options.keys));
  const std::vector<Listed> rows = rows_of(tree);
  options.json ? print_ls_json(rows, out) : print_ls_table(rows, out);
  return 0;
}

}  // namespace

void add_ls(CLI::App& app, Chosen& chosen) {
  auto options = std::make_shared<LsArguments>();
  CLI::App* command = app.add_subcommand("ls", "List tensors: key, dtype, shape, bytes");
  command->add_option("path", options->path, "File or folder")->required();
  command->add_option("key", options->keys, "Only these: dotted names or globs");
  command->add_flag("--json", options->json, "One JSON document");
  command->callback([options, &chosen] {
    chosen.command = [options](Output& out) { return ls(*options, out); };
  });
}

}  // namespace tenfold::cli

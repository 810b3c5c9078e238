#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <tenfold/error.hpp>
#include <tenfold/mapped_dict.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>
#include <optional>

#include "columns.hpp"
#include "commands.hpp"
#include "elements.hpp"
#include "json.hpp"
#include "options.hpp"
#include "text.hpp"

namespace tenfold::cli {
namespace {

/// Maximum width of a data set's cell on a terminal.
constexpr std::size_t kMaxCellWidth = 32;

struct HeadArguments {
  std::string path;
  std::string key;
  std::int64_t num_rows = 5;
  bool json = false;
};

struct Entry {
  std::string key;
  TensorDict::Item item;
};

/// Returns the tensor or JSON value that `options.key` names. Throws unless it names exactly one.
Entry only_entry(const TensorDict& tree, const HeadArguments& options) {
  if (options.key.empty()) {
    throw Error(ErrorCode::invalid_argument)
        .path(options.path)
        .expected("KEY, the name of one tensor or JSON value, because this is not a data set")
        .remedy("`tenfold ls` lists the names");
  }
  std::vector<Entry> entries;
  select(tree, {{options.key}})
      .for_each_leaf([&](const KeyPath& path, const TensorDict::Item& item) {
        entries.push_back({dotted(path), item});
      });
  if (entries.size() == 1) return entries.front();
  std::string remedy;
  for (std::size_t i = 0; i < std::min<std::size_t>(3, entries.size()); ++i) {
    remedy += (i == 0 ? "did you mean \"" : ", \"") + entries[i].key + "\"";
  }
  if (!remedy.empty()) remedy += "?";
  throw Error(ErrorCode::invalid_argument)
      .path(options.path)
      .part("key \"", options.key, "\"")
      .expected("the name of one tensor or JSON value")
      .found(entries.empty() ? "an empty node" : std::to_string(entries.size()) + " of them")
      .remedy(remedy);
}

/// The rows of a tensor: total number, number to show, elements per row.
struct Rows {
  std::uint64_t total = 1;
  std::uint64_t shown = 1;
  std::uint64_t elements = 1;
  Shape shape;  ///< shape of one row
};

Rows rows_of(const Leaf& leaf, std::int64_t wanted) {
  Rows rows;
  Shape shape = leaf.shape();
  if (leaf.is_nested()) {  // all values, in one dimension
    shape = {static_cast<std::int64_t>(leaf.nbytes() / itemsize(leaf.dtype()))};
  }
  if (shape.empty()) return rows;
  rows.total = static_cast<std::uint64_t>(shape.front());
  rows.shown = std::min(rows.total, static_cast<std::uint64_t>(wanted));
  rows.shape.assign(shape.begin() + 1, shape.end());
  rows.elements = static_cast<std::uint64_t>(numel_of(rows.shape));
  return rows;
}

void print_json(const std::string& key, const Leaf& leaf, const Rows& rows, Output& out) {
  Value::List list;
  for (std::uint64_t row = 0; row < rows.shown; ++row) {
    const auto texts = element_texts(leaf, row * rows.elements, (row + 1) * rows.elements);
    std::size_t at = 0;
    list.items.push_back(nested_json(leaf.dtype(), rows.shape, 0, texts, at));
  }
  out.document(object({{"key", key},
                       {"dtype", to_string(leaf.dtype())},
                       {"shape", shape_json(leaf.shape())},
                       {"rows", std::move(list)}}));
}

/// Formats a row of two or more dimensions with nested brackets, and "…" in place of the elements
/// that were not read. If one dimension is 0, returns "[]", because the other dimensions may be
/// huge.
std::string nested_text(const Shape& shape, std::size_t level,
                        const std::vector<std::string>& texts, std::size_t& at) {
  if (level == shape.size()) return at < texts.size() ? texts[at++] : "…";
  std::string text = "[";
  for (std::int64_t i = 0; i < shape[level] && numel_of(shape) != 0; ++i) {
    if (i != 0) text += ", ";
    if (at >= texts.size()) return text + "…]";
    text += nested_text(shape, level + 1, texts, at);
  }
  return text + "]";
}

std::vector<std::string> readable_elements(const Leaf& leaf, std::uint64_t begin,
                                           std::uint64_t end) {
  std::vector<std::string> texts = element_texts(leaf, begin, end);
  std::transform(texts.begin(), texts.end(), texts.begin(), readable);
  return texts;
}

void print_text(const std::string& key, const Leaf& leaf, const Rows& rows, Output& out) {
  out.line(out.paint(Style::bold, printable(key)) + "  " +
           out.paint(Style::dtype, leaf_text(leaf)));
  const std::size_t columns = out.columns();  // 0: no limit for the width of a line
  // Do not read elements that cannot fit in a line: each takes at least three columns, one for a
  // character and two for the gap.
  const std::uint64_t elements =
      columns == 0 ? rows.elements : std::min<std::uint64_t>(rows.elements, columns / 3 + 1);
  std::vector<std::vector<std::string>> cells;
  std::size_t cell_width = 0;
  for (std::uint64_t row = 0; row < rows.shown; ++row) {
    const std::uint64_t begin = row * rows.elements;
    cells.push_back(readable_elements(leaf, begin, begin + elements));
    for (const std::string& cell : cells.back()) cell_width = std::max(cell_width, cell.size());
  }
  const std::size_t label_width = std::to_string(rows.shown).size();
  for (std::size_t row = 0; row < cells.size(); ++row) {
    std::string line;
    if (rows.shape.size() > 1) {
      std::size_t at = 0;
      line = nested_text(rows.shape, 0, cells[row], at);
    } else {
      for (const std::string& cell : cells[row]) {
        line += (line.empty() ? "" : "  ") + fmt::format("{:>{}}", cell, cell_width);
      }
      if (elements < rows.elements) line += "  …";
    }
    const std::string label = leaf.shape().empty() ? "" : fmt::format("{:>{}}  ", row, label_width);
    if (columns != 0) line = cut_end(line, columns > label.size() + 1 ? columns - label.size() : 1);
    out.line(out.paint(Style::dim, label) + line);
  }
  if (rows.shown < rows.total) {
    out.line(out.paint(Style::dim, "… " + counted(rows.total - rows.shown, "more row")));
  }
}

/// Formats a value of a row for display. Strings have quotes only in a list. Floating-point numbers
/// have six significant digits.
std::string cell_text(const Value& value) {
  if (const auto* text = std::get_if<std::string>(&value.data())) return printable(*text);
  if (const auto* number = std::get_if<Value::BigInt>(&value.data())) {
    return readable(number->digits);
  }
  const auto* number = std::get_if<double>(&value.data());
  if (number != nullptr && std::isnan(*number)) return "nan";
  const auto* list = std::get_if<Value::List>(&value.data());
  if (list == nullptr) return printable(strict_json(value));
  std::string text = "[";
  for (const Value& item : list->items) {
    const bool is_text = std::holds_alternative<std::string>(item.data());
    text += text.size() == 1 ? "" : ", ";
    text += is_text ? printable(strict_json(item)) : cell_text(item);
  }
  return text + "]";
}

void print_rows_json(const Dataset& data, const std::vector<Column>& columns,
                     const std::vector<std::vector<Value>>& values, Output& out) {
  Value::List described;
  Value::List rows;
  for (const Column& column : columns) {
    described.items.push_back(object({{"key", column.name()},
                                      {"dtype", column.dtype_name()},
                                      {"shape", shape_json(data, column)},
                                      {"nullable", column.nullable}}));
  }
  const std::size_t num_shown = values.empty() ? 0 : values.front().size();
  for (std::size_t row = 0; row < num_shown; ++row) {
    std::vector<std::pair<std::string, Value>> members;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      members.emplace_back(columns[i].name(), values[i][row]);
    }
    rows.items.push_back(object(std::move(members)));
  }
  out.document(object(
      {{"num_rows", data.size()}, {"columns", std::move(described)}, {"rows", std::move(rows)}}));
}

void print_rows(const Dataset& data, const std::vector<Column>& columns,
                const std::vector<std::vector<Value>>& values, Output& out) {
  std::vector<Table::Column> titles = {{"row", Table::Align::right, Style::dim}};
  for (const Column& column : columns) {
    const bool is_number = !column.has_ends() && column.shape.empty();
    titles.push_back(
        {printable(column.name()), is_number ? Table::Align::right : Table::Align::left});
  }
  Table table(std::move(titles));
  const std::size_t num_shown = values.front().size();
  for (std::size_t row = 0; row < num_shown; ++row) {
    std::vector<std::string> cells = {std::to_string(row)};
    for (const std::vector<Value>& column : values) {
      const std::string text = cell_text(column[row]);
      cells.push_back(out.columns() == 0 ? text : cut_end(text, kMaxCellWidth));
    }
    table.add_row(std::move(cells));
  }
  table.print(out);
  const auto num_rows = static_cast<std::uint64_t>(data.size());
  if (num_shown < num_rows) {
    out.line(out.paint(Style::dim, "… " + counted(num_rows - num_shown, "more row")));
  }
}

/// Prints the first rows of a data set. If KEY selects one column, the JSON document has the same
/// members as for a tensor.
int head_of_dataset(const Dataset& data, const HeadArguments& options, Output& out) {
  std::vector<std::string> keys;
  if (!options.key.empty()) keys.push_back(options.key);
  const std::vector<Column> columns = columns_of(data, keys);
  std::vector<std::vector<Value>> values;
  for (const Column& column : columns) {
    values.push_back(first_values(data, column, options.num_rows));
  }
  if (!options.json) {
    columns.empty() ? out.line("no columns") : print_rows(data, columns, values, out);
  } else if (options.key.empty() || columns.size() > 1) {
    print_rows_json(data, columns, values, out);
  } else {
    Value::List rows;
    rows.items = std::move(values.front());
    out.document(object({{"key", columns.front().name()},
                         {"dtype", columns.front().dtype_name()},
                         {"shape", shape_json(data, columns.front())},
                         {"rows", std::move(rows)}}));
  }
  return 0;
}

/// The data set of a tree; nullopt if the tree has no schema. If the tree is a dictionary, omits
/// the rows that were superseded by new values of their keys.
std::optional<Dataset> current_rows(const TensorDict& tree, const std::string& path) {
  const auto* schema = tree.info().schema ? tree.info().schema->get_if<Value::Object>() : nullptr;
  if (schema != nullptr && schema->find("mapped_dict") != nullptr) {
    const MappedDict dict(path);
    if (!dict.is_dense()) return dict.dataset().take(Tensor::from(dict.ordered_rows()));
  }
  return dataset_of(tree);
}

int head(const HeadArguments& options, Output& out) {
  const TensorDict tree = named_by_file(open(options.path));
  if (const auto data = current_rows(tree, options.path))
    return head_of_dataset(*data, options, out);
  const Entry entry = only_entry(tree, options);
  if (const auto* leaf = std::get_if<Leaf>(&entry.item)) {
    const Rows rows = rows_of(*leaf, options.num_rows);
    options.json ? print_json(entry.key, *leaf, rows, out)
                 : print_text(entry.key, *leaf, rows, out);
    return 0;
  }
  const Value& value = std::get<NonTensor>(entry.item).value;
  if (options.json) {
    out.document(object({{"key", entry.key},
                         {"dtype", "json"},
                         {"shape", Value()},
                         {"rows", Value::List{{value}}}}));
  } else {
    out.line(out.paint(Style::bold, printable(entry.key)) + "  " + out.paint(Style::dtype, "json"));
    out.line(printable(to_json(value)));
  }
  return 0;
}

}  // namespace

void add_head(CLI::App& app, Chosen& chosen) {
  auto options = std::make_shared<HeadArguments>();
  CLI::App* command = app.add_subcommand("head", "Print the first rows of a tensor or a data set");
  command->add_option("path", options->path, "File or folder")->required();
  command->add_option("key", options->key, "A dotted name, such as a column's (default: all)");
  command->add_option("--rows", options->num_rows, "Rows to print (default: 5)")
      ->transform(whole_number(0, INT64_MAX));
  command->add_flag("--json", options->json, "One JSON document");
  command->callback([options, &chosen] {
    chosen.command = [options](Output& out) { return head(*options, out); };
  });
}

}  // namespace tenfold::cli

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <tenfold/error.hpp>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <memory>

#include "commands.hpp"
#include "json.hpp"
#include "text.hpp"

namespace tenfold::cli {
namespace {

/// Columns of a row where the output is no terminal.
constexpr std::size_t kPlainColumns = 120;

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

/// The one tensor or JSON value that the key names.
Entry only_entry(const HeadArguments& options) {
  const TensorDict tree = select(open(options.path), {{options.key}});
  std::vector<Entry> entries;
  tree.for_each_leaf([&](const KeyPath& path, const TensorDict::Item& item) {
    entries.push_back({dotted(path), item});
  });
  if (entries.size() == 1) return entries.front();
  std::string message = fmt::format("{}: key \"{}\": expected the name of one tensor, found {}",
                                    options.path, options.key, counted(entries.size(), "entry"));
  if (entries.size() > 1) {
    message = fmt::format("{}: key \"{}\": expected the name of one tensor, found {} of them",
                          options.path, options.key, entries.size());
  }
  for (std::size_t i = 0; i < std::min<std::size_t>(3, entries.size()); ++i) {
    message += (i == 0 ? "; did you mean \"" : ", \"") + entries[i].key + "\"";
  }
  throw Error(ErrorCode::invalid_argument, message);
}

/// Rows of a tensor: how many there are, how many to show, elements in each.
struct Rows {
  std::uint64_t total = 1;
  std::uint64_t shown = 1;
  std::uint64_t elements = 1;
  Shape shape;  ///< of one row
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

Value json_element(DType dtype, const std::string& text) {
  if (dtype == DType::bool_) return {text == "true"};
  // BigInt: a JSON number, written as its text stands.
  if (is_integer(dtype)) return {Value::BigInt{text}};
  if (text == "nan") return {std::numeric_limits<double>::quiet_NaN()};
  const bool is_number = text != "inf" && text != "-inf" && !text.ends_with('j') &&
                         text.find(',') == std::string::npos;
  return is_number ? Value(Value::BigInt{json_float(text)}) : Value(text);
}

/// The elements of `texts` from `at` on as nested lists of that shape.
Value nested_json(DType dtype, const Shape& shape, std::size_t level,
                  const std::vector<std::string>& texts, std::size_t& at) {
  if (level == shape.size()) return json_element(dtype, texts[at++]);
  Value::List list;
  for (std::int64_t i = 0; i < shape[level]; ++i) {
    list.items.push_back(nested_json(dtype, shape, level + 1, texts, at));
  }
  return {std::move(list)};
}

void print_json(const std::string& key, const Leaf& leaf, const Rows& rows, Output& out) {
  Value::List list;
  for (std::uint64_t row = 0; row < rows.shown; ++row) {
    const auto texts = element_texts(leaf, row * rows.elements, (row + 1) * rows.elements);
    std::size_t at = 0;
    list.items.push_back(nested_json(leaf.dtype(), rows.shape, 0, texts, at));
  }
  out.document(object({{"key", key},
                       {"dtype", name(leaf.dtype())},
                       {"shape", shape_json(leaf.shape())},
                       {"rows", std::move(list)}}));
}

/// A row of two or more dimensions as nested brackets, as far as its elements were read.
std::string nested_text(const Shape& shape, std::size_t level,
                        const std::vector<std::string>& texts, std::size_t& at) {
  if (level == shape.size()) return at < texts.size() ? texts[at++] : "…";
  std::string text = "[";
  for (std::int64_t i = 0; i < shape[level]; ++i) {
    if (i != 0) text += ", ";
    if (at >= texts.size() && !texts.empty()) return text + "…]";
    text += nested_text(shape, level + 1, texts, at);
  }
  return text + "]";
}

/// Six significant digits are enough to look at; --json tells them all.
std::string readable(const std::string& element) {
  if (element.find_first_of(".e") == std::string::npos) return element;  // integers, nan, inf
  char* end = nullptr;
  const double number = std::strtod(element.c_str(), &end);
  return *end == '\0' ? fmt::format("{:.6g}", number) : element;
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
  const std::size_t columns = out.columns() == 0 ? kPlainColumns : out.columns();
  // An element takes a character and a gap of two at least: more would not fit.
  const std::uint64_t elements = std::min<std::uint64_t>(rows.elements, columns / 3 + 1);
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
    const std::size_t room = columns > label.size() + 1 ? columns - label.size() : 1;
    out.line(out.paint(Style::dim, label) + cut_end(line, room));
  }
  if (rows.shown < rows.total) {
    out.line(out.paint(Style::dim, "… " + counted(rows.total - rows.shown, "more row")));
  }
}

int head(const HeadArguments& options, Output& out) {
  const Entry entry = only_entry(options);
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
  CLI::App* command = app.add_subcommand("head", "Print the first rows of a tensor");
  command->add_option("path", options->path, "File or folder")->required();
  command->add_option("key", options->key, "The tensor: a dotted name")->required();
  command->add_option("--rows", options->num_rows, "Rows to print (default: 5)")
      ->check(CLI::NonNegativeNumber);
  command->add_flag("--json", options->json, "One JSON document");
  command->callback([options, &chosen] {
    chosen.command = [options](Output& out) { return head(*options, out); };
  });
}

}  // namespace tenfold::cli

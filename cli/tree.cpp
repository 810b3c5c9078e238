#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>

#include "commands.hpp"
#include "interrupt.hpp"
#include "options.hpp"
#include "text.hpp"

namespace tenfold::cli {
namespace {

/// Names of siblings are padded to the width of the longest name that has at most this width.
constexpr std::size_t kMaxPadding = 48;
/// Minimum and maximum width to which a JSON value is cut on a terminal.
constexpr std::size_t kLeastValueWidth = 20;
constexpr std::size_t kMaxValueWidth = 120;

struct TreeArguments {
  std::string path;
  std::size_t depth = 0;
  bool json = false;
};

std::string node_text(const TensorDict& node) {
  std::string text(to_string(node.kind()));
  if (node.info().int_keys) text += " of int keys";
  if (!node.info().class_name.empty()) text += " " + printable(node.info().class_name);
  const bool has_batch =
      node.kind() == NodeKind::tensordict || node.kind() == NodeKind::tensorclass;
  if (has_batch) text += " batch_size " + shape_text(node.batch_size());
  return text;
}

/// True if the error of an entry means damage. An entry of an unsupported format is not damaged.
bool is_damage(const Error& error) { return error.code() != ErrorCode::unsupported; }

/// Sets `is_damaged` if an entry is damaged.
Value json_of(const std::string& name, const TensorDict& node, std::size_t levels_left,
              bool& is_damaged) {
  Value::List children;
  if (levels_left != 0) {
    for_each_readable(
        node,
        [&](const std::string& key, const TensorDict::Item& item) {
          throw_if_interrupted();
          const auto* child = std::get_if<TensorDict>(&item);
          children.items.push_back(child != nullptr
                                       ? json_of(key, *child, levels_left - 1, is_damaged)
                                       : object({{"name", key}, {"children", Value::List{}}}));
        },
        [&](const std::string& key, const Error& error) {
          is_damaged |= is_damage(error);
          children.items.push_back(
              object({{"name", key}, {"children", Value::List{}}, {"problem", error.what()}}));
        });
  }
  return object({{"name", name}, {"children", std::move(children)}});
}

class Drawer {
 public:
  Drawer(Output& out, std::size_t depth) : out_(out), depth_(depth) {}

  void draw(const TensorDict& node, const std::string& indent, std::size_t level) {
    throw_if_interrupted();
    if (depth_ != 0 && level == depth_) return;
    std::size_t padding = 0;
    for (const std::string& key : node.keys()) {
      const std::size_t width = width_of(printable(key));
      if (width <= kMaxPadding) padding = std::max(padding, width);
    }
    const std::size_t count = node.size();
    std::size_t position = 0;
    const auto begin = [&](const std::string& shown) {
      return out_.paint(Style::dim, indent + (++position == count ? "└── " : "├── ")) + shown;
    };
    const auto blanks = [&](const std::string& shown) {
      return std::string(padding - std::min(padding, width_of(shown)) + 2, ' ');
    };
    for_each_readable(
        node,
        [&](const std::string& key, const TensorDict::Item& item) {
          const std::string shown = printable(key);
          const auto* child = std::get_if<TensorDict>(&item);
          if (child == nullptr) {
            out_.line(begin(shown) + blanks(shown) +
                      item_text(item, width_of(indent) + padding + 6));
            return;
          }
          out_.line(begin(out_.paint(Style::node, shown)) + blanks(shown) +
                    out_.paint(Style::dim, node_text(*child)));
          draw(*child, indent + (position == count ? "    " : "│   "), level + 1);
        },
        [&](const std::string& key, const Error& error) {
          const std::string shown = printable(key);
          is_damaged_ |= is_damage(error);
          out_.line(begin(shown) + blanks(shown) +
                    out_.paint(Style::dim, "not read: " + printable(error.what())));
        });
  }

  bool is_damaged() const noexcept { return is_damaged_; }

 private:
  std::string item_text(const TensorDict::Item& item, std::size_t used) const {
    if (const auto* leaf = std::get_if<Leaf>(&item)) {
      return out_.paint(Style::dtype, to_string(leaf->dtype())) +
             leaf_text(*leaf).substr(to_string(leaf->dtype()).size());
    }
    const std::string text = printable(to_json(std::get<NonTensor>(item).value));
    if (out_.columns() == 0) return text;
    const std::size_t rest = out_.columns() - std::min(out_.columns(), used);
    return cut_end(text, std::clamp(rest, kLeastValueWidth, kMaxValueWidth));
  }

  Output& out_;
  std::size_t depth_;
  bool is_damaged_ = false;
};

int tree(const TreeArguments& options, Output& out) {
  const TensorDict root = named_by_file(open(options.path));
  if (options.json) {
    const std::size_t levels = options.depth == 0 ? static_cast<std::size_t>(-1) : options.depth;
    bool is_damaged = false;
    out.document(json_of(options.path, root, levels, is_damaged));
    return is_damaged ? 1 : 0;
  }
  out.line(out.paint(Style::node, printable(options.path)) + "  " +
           out.paint(Style::dim, node_text(root)));
  Drawer drawer(out, options.depth);
  drawer.draw(root, "", 0);
  return drawer.is_damaged() ? 1 : 0;
}

}  // namespace

void add_tree(CLI::App& app, Chosen& chosen) {
  auto options = std::make_shared<TreeArguments>();
  CLI::App* command = app.add_subcommand("tree", "Draw nesting, dtypes, shapes and JSON values");
  command->add_option("path", options->path, "File or folder")->required();
  command->add_option("--depth", options->depth, "Levels to show (default: all)")
      ->transform(whole_number(1, INT64_MAX));
  command->add_flag("--json", options->json, "One JSON document");
  command->callback([options, &chosen] {
    chosen.command = [options](Output& out) { return tree(*options, out); };
  });
}

}  // namespace tenfold::cli

#include "io/rename.hpp"

#include <tenfold/error.hpp>

#include <algorithm>
#include <map>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/tree/node.hpp"
#include "core/tree/typed_keys.hpp"
#include "io/tree.hpp"

namespace tenfold {

void append_split(std::string_view name, KeyPath& path) {
  for (;;) {
    const std::size_t dot = name.find('.');
    path.emplace_back(name.substr(0, dot));
    if (dot == std::string_view::npos) return;
    name.remove_prefix(dot + 1);
  }
}

namespace {

bool is_flat(const TensorDict& tree) {
  bool flat = true;
  tree.for_each([&](const std::string&, const TensorDict::Item& item) {
    flat = flat && !std::holds_alternative<TensorDict>(item);
  });
  return flat;
}

struct Renamer {
  const RenameFunction& rename;
  bool flat;
  std::map<KeyPath, NodeInfo> infos;         ///< the NodeInfo of each node of the source
  std::map<KeyPath, std::string> taken;      ///< new path of an entry -> its old name
  std::map<std::string, std::string> names;  ///< new dotted name of an entry -> its old name
  std::map<KeyPath, std::string> entered;    ///< new path of a node -> old name of an entry in it
  TensorDict root;
  std::map<KeyPath, std::string> values_of;  ///< leaf of a column -> name of the column's values
  std::map<KeyPath, KeyPath> renamed;        ///< old path of an entry -> its new path

  [[noreturn]] static void clash(const std::string& a, const std::string& b,
                                 const KeyPath& target) {
    throw base::invalid_argument()
        .part("rename")
        .problem(base::quote(a), " and ", base::quote(b), " both become ",
                 base::quote(dotted(target)))
        .expected("a different new name for each");
  }

  /// Throws because `target`, the new path of the entry `name`, is above or below the new path of
  /// the entry `other`. `how` joins the two names in the message.
  [[noreturn]] static void clash_below(const std::string& name, const KeyPath& target,
                                       const std::string& other, const std::string& how) {
    throw base::invalid_argument()
        .part("rename")
        .problem(base::quote(name), " becomes ", base::quote(dotted(target)), how,
                 base::quote(other))
        .expected("an unused name");
  }

  /// Returns the node that contains the entry at `path`, and creates missing nodes. `source` is the
  /// old name of the entry, for messages.
  TensorDict parent_of(const KeyPath& path, const std::string& source) {
    TensorDict node = root;
    KeyPath at;
    for (std::size_t i = 0; i + 1 < path.size(); ++i) {
      at.push_back(path[i]);
      if (const auto entry = taken.find(at); entry != taken.end()) {
        clash_below(source, path, entry->second,
                    ", but " + base::quote(dotted(at)) + " is no node: it is the new name of ");
      }
      entered.emplace(at, source);
      if (!has_key(node, path[i])) node.set(path[i], TensorDict(info_for(at)));
      node = node[path[i]];
    }
    return node;
  }

  /// Returns the NodeInfo of a new node: that of the source's node at `path`. If the source has no
  /// node there, the new node is of the root's kind if the root is an ordered dict or a TensorDict
  /// (with the root's batch size). Otherwise it is a dict.
  NodeInfo info_for(const KeyPath& path) const {
    if (const auto known = infos.find(path); known != infos.end()) {
      NodeInfo info = known->second;
      info.int_keys = false;  // fix_kinds() sets it, when all keys are known
      return info;
    }
    const NodeInfo& top = root.info();
    NodeInfo info;
    info.kind = top.kind == NodeKind::ordered_dict || top.kind == NodeKind::tensordict
                    ? top.kind
                    : NodeKind::dict;
    if (info.kind == NodeKind::tensordict) info.batch_size = top.batch_size;
    return info;
  }

  /// The new name of the entry at `path`. The end offsets and the validity of a column are renamed
  /// with its values, unless `rename` renames them.
  std::string new_name_of(const KeyPath& path, const std::string& name) const {
    std::string new_name = rename(name);
    const auto values = values_of.find(path);
    if (new_name != name || values == values_of.end()) return new_name;
    return name.starts_with(values->second + ".")
               ? rename(values->second) + name.substr(values->second.size())
               : name;
  }

  /// Gives the columns and their leaves the new names.
  void rename_columns(const std::vector<Column>& old_columns) {
    std::vector<Column> columns = old_columns;
    for (Column& column : columns) {
      const std::string name = dotted(column.leaf);
      for (KeyPath* leaf :
           {&column.leaf, &column.end_leaf, &column.item_end_leaf, &column.valid_leaf}) {
        if (const auto found = renamed.find(*leaf); found != renamed.end()) *leaf = found->second;
      }
      const std::string new_name = dotted(column.leaf);
      if (name != column.name() || new_name == name) continue;
      column.path = renamed_path(column.path, new_name, column.path.size() == 1);
    }
    if (columns == old_columns) return;
    try {
      replace_columns(root, std::move(columns));
    } catch (const Error&) {  // the new names are not names of columns
      root.info().schema.reset();
    }
  }

  void place(const KeyPath& path, const TensorDict::Item& item) {
    const std::string name = dotted(path);
    const std::string new_name = new_name_of(path, name);
    if (new_name.empty()) {
      throw base::invalid_argument()
          .part("rename: ", base::quote(name))
          .expected("a new name that is not empty")
          .found("\"\"");
    }
    const KeyPath target = new_name == name ? path : renamed_path(path, new_name, flat);
    TensorDict parent = parent_of(target, name);
    if (const auto node = entered.find(target); node != entered.end()) {
      if (parent[target.back()].empty()) clash(node->second, name, target);
      clash_below(name, target, node->second, ", which is a node: it will contain the source's ");
    }
    const auto [entry, is_new] = names.emplace(dotted(target), name);
    // Keys may contain dots, so two entries can have the same dotted name. That is an error only if
    // at least one of them was renamed.
    const bool are_unchanged = new_name == name && entry->second == name;
    if (!is_new && !are_unchanged) clash(entry->second, name, target);
    taken.emplace(target, name);
    renamed.emplace(path, target);
    parent.set(target.back(), item);
  }

  /// Adds an empty node of the source, unless entries were renamed to names below it.
  void place_empty(const KeyPath& path, const TensorDict& node) {
    const std::string name = dotted(path);
    TensorDict parent = parent_of(path, name);
    if (const auto entry = taken.find(path); entry != taken.end()) clash(entry->second, name, path);
    if (entered.emplace(path, name).second) parent.set(path.back(), empty_like(node));
  }

  void collect_infos(const TensorDict& node, KeyPath& path) {
    infos.emplace(path, node.info());
    node.for_each([&](const std::string& key, const TensorDict::Item& item) {
      const auto* child = std::get_if<TensorDict>(&item);
      if (child == nullptr) return;
      path.push_back(key);
      collect_infos(*child, path);
      path.pop_back();
    });
  }

  void walk(const TensorDict& node, KeyPath& path) {
    node.for_each([&](const std::string& key, const TensorDict::Item& item) {
      path.push_back(key);
      if (const auto* child = std::get_if<TensorDict>(&item)) {
        if (child->empty()) place_empty(path, *child);
        walk(*child, path);
      } else {
        place(path, item);
      }
      path.pop_back();
    });
  }

  /// Fixes the kinds of `node`, which is the node at `path`, and of the nodes below it.
  void fix_kinds(TensorDict node, KeyPath& path) const {
    node.for_each([&](const std::string& key, const TensorDict::Item& item) {
      const auto* child = std::get_if<TensorDict>(&item);
      if (child == nullptr) return;
      path.push_back(key);
      fix_kinds(*child, path);
      path.pop_back();
    });
    if (const auto known = infos.find(path); known != infos.end() && known->second.int_keys) {
      node.info().int_keys = true;
      fit_int_keys(node.info(), node.keys());
    }
    fix_kind(node);
  }
};

}  // namespace

KeyPath renamed_path(const KeyPath& path, const std::string& new_name, bool flat) {
  if (flat) return {new_name};
  // Unchanged keys at the start and end are kept, even if they contain dots.
  std::string_view middle = new_name;
  std::size_t head = 0;
  while (head + 1 < path.size() && middle.size() > path[head].size() + 1 &&
         middle.starts_with(path[head]) && middle[path[head].size()] == '.') {
    middle.remove_prefix(path[head].size() + 1);
    ++head;
  }
  std::size_t tail = path.size();
  while (tail > head && middle.ends_with(path[tail - 1])) {
    const std::size_t rest = middle.size() - path[tail - 1].size();
    if (rest != 0 && middle[rest - 1] != '.') break;
    middle = middle.substr(0, rest == 0 ? 0 : rest - 1);
    --tail;
    if (middle.empty()) break;
  }
  KeyPath renamed(path.begin(), path.begin() + static_cast<std::ptrdiff_t>(head));
  if (!middle.empty() && tail == head + 1) {
    renamed.emplace_back(middle);  // one key replaced by one key
  } else if (!middle.empty()) {
    append_split(middle, renamed);
  }
  renamed.insert(renamed.end(), path.begin() + static_cast<std::ptrdiff_t>(tail), path.end());
  return renamed;
}

void require_renamed(const TensorDict& tree, const std::vector<std::string>& names) {
  if (names.empty()) return;
  std::vector<std::string> known;
  tree.for_each_leaf(
      [&](const KeyPath& path, const TensorDict::Item&) { known.push_back(dotted(path)); });
  const std::unordered_set<std::string_view> all(known.begin(), known.end());
  for (const std::string& name : names) {
    if (all.contains(name)) continue;
    const Error error =
        base::key_not_found(tree.where()).part("rename").problem("no key ", base::quote(name));
    const bool is_prefix = std::ranges::any_of(
        known, [&](const std::string& other) { return other.starts_with(name + "."); });
    if (is_prefix) {
      throw Error(error)
          .problem(error.problem(), ": whole names are renamed")
          .expected("the name of a tensor or value")
          .found("the start of other names")
          .remedy("in Python, a pattern renames them: (\"^", name, "[.]\", ...)");
    }
    throw Error(error).remedy(base::did_you_mean(name, known, 1));
  }
}

TensorDict rename_leaves(const TensorDict& tree, const RenameFunction& rename) {
  if (!rename) return tree;
  Renamer renamer{rename, is_flat(tree), {}, {}, {}, {}, empty_like(tree), {}, {}};
  const std::vector<Column> columns = columns_of(tree);
  for (const Column& column : columns) {
    for (const KeyPath& leaf : leaves_of(column)) {
      if (leaf != column.leaf) renamer.values_of.emplace(leaf, dotted(column.leaf));
    }
  }
  KeyPath path;
  renamer.root.info().int_keys = false;  // fix_kinds() sets it
  renamer.collect_infos(tree, path);
  renamer.walk(tree, path);
  renamer.fix_kinds(renamer.root, path);
  renamer.rename_columns(columns);
  renamer.root.info().is_bare = is_bare(renamer.root);
  return renamer.root;
}

}  // namespace tenfold

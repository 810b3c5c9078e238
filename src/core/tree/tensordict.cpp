#include <array>
#include <span>
#include <type_traits>
#include <unordered_set>
#include <utility>

#include <tenfold/error.hpp>
#include <tenfold/tensordict.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/tree/leaf_source.hpp"
#include "core/tree/node.hpp"
#include "core/tree/typed_keys.hpp"

namespace tenfold {
namespace {

constexpr std::array<std::string_view, 9> kKindNames = {"tensordict", "dict",   "ordered_dict",
                                                        "list",       "tuple",  "tensorclass",
                                                        "lazy_stack", "sparse", "opaque"};

/// For messages: names the node at the path `below` under the node `where`, as "ckpt" if the path
/// is empty, or as "ckpt: node \"model.encoder\"".
base::Where place(const std::string& where, std::span<const std::string> below) {
  if (below.empty()) return where;
  return {where, "node " + base::quote(dotted(KeyPath(below.begin(), below.end())))};
}

std::string_view kind_text(const TensorDict::Item& item) {
  return std::holds_alternative<Leaf>(item)        ? "a tensor"
         : std::holds_alternative<NonTensor>(item) ? "a JSON value"
                                                   : "a node";
}

/// The call of TensorDict that returns an item of this kind.
std::string_view call_for(const TensorDict::Item& item) {
  return std::holds_alternative<Leaf>(item)        ? "at() returns tensors"
         : std::holds_alternative<NonTensor>(item) ? "value() returns JSON values"
                                                   : "operator[] returns nodes";
}

Error other_kind(const base::Where& place, std::string_view key, std::string_view expected,
                 const TensorDict::Item& item) {
  return base::key_not_found(place)
      .part("key ", base::quote(key))
      .expected(expected)
      .found(kind_text(item));
}

/// An entry, and the name of the node that contains it, for messages.
struct Found {
  TensorDict::Item item;
  base::Where place;
};

/// Throws other_kind() with a remedy that names the right call. For calls that only C++ has.
[[noreturn]] void fail_other_kind(const Found& found, std::string_view key,
                                  std::string_view expected) {
  throw other_kind(found.place, key, expected, found.item).remedy(call_for(found.item));
}

/// The entry that a caller requested by its key. Throws Error(unsupported) if the entry is an
/// unreadable node (NodeInfo::is_refused()).
TensorDict::Item requested_item(Node& node, std::size_t position) {
  TensorDict::Item item = node.item(position);
  const auto* child = std::get_if<TensorDict>(&item);
  if (child != nullptr && child->info().is_refused()) {
    throw base::unsupported(child->where()).problem(child->info().problem);
  }
  return item;
}

/// The child node of that key. Returns nullopt if there is none, or if it is an unreadable node.
std::optional<TensorDict> readable_child(const TensorDict& node, std::string_view key) {
  const std::size_t position = node_of(node)->find(key);
  if (position == Node::npos) return std::nullopt;
  const TensorDict::Item item = node_of(node)->item(position);
  const auto* child = std::get_if<TensorDict>(&item);
  if (child == nullptr || child->info().is_refused()) return std::nullopt;
  return *child;
}

/// Resolves a dotted name to a path of keys below `node`; keys may contain dots themselves. Returns
/// an empty path if nothing matches. If several paths match, returns the one with the longest first
/// key.
KeyPath path_of_name(const TensorDict& node, std::string_view name) {
  if (node_of(node)->find_or_stem(name) != Node::npos) return {std::string(name)};
  constexpr std::size_t kNone = std::string_view::npos;
  for (std::size_t dot = name.rfind('.'); dot != kNone;
       dot = dot == 0 ? kNone : name.rfind('.', dot - 1)) {
    const std::optional<TensorDict> child = readable_child(node, name.substr(0, dot));
    if (!child) continue;
    KeyPath path = path_of_name(*child, name.substr(dot + 1));
    if (path.empty()) continue;
    path.insert(path.begin(), std::string(name.substr(0, dot)));
    return path;
  }
  return {};
}

/// Suggests keys of `node`, or names that differ from the missing `name` in the first key only.
std::string suggestion(const TensorDict& node, std::string_view name) {
  const std::vector<std::string> keys = node.keys();
  std::string text = base::did_you_mean(name, keys);
  const std::size_t dot = name.find('.');
  if (!text.empty() || dot == std::string_view::npos) return text;
  std::vector<std::string> names = base::near_matches(name.substr(0, dot), keys);
  for (std::string& near : names) near += name.substr(dot);
  std::erase_if(names, [&](const std::string& near) { return path_of_name(node, near).empty(); });
  return base::did_you_mean(name, names);
}

[[noreturn]] void fail_no_key(const base::Where& place, std::string_view key,
                              const std::string& remedy) {
  throw base::key_not_found(place).problem("no key ", base::quote(key)).remedy(remedy);
}

/// Follows `path` from `root`. Errors name the missing or wrong key and the node that it was looked
/// up in.
Found follow(const TensorDict& root, std::span<const std::string> path) {
  if (path.empty()) {
    throw base::invalid_argument(root.where()).problem("the path has no keys");
  }
  TensorDict node = root;
  std::string where = root.where();
  std::size_t named = 0;  // number of keys that `where` includes
  for (std::size_t i = 0;; ++i) {
    const base::Where here = place(where, path.subspan(named, i - named));
    const std::size_t position = node_of(node)->find_or_stem(path[i]);
    if (position == Node::npos) fail_no_key(here, path[i], suggestion(node, path[i]));
    TensorDict::Item item = requested_item(*node_of(node), position);
    if (i + 1 == path.size()) return {std::move(item), here};
    const auto* child = std::get_if<TensorDict>(&item);
    if (child == nullptr) throw other_kind(here, path[i], "a node", item);
    node = TensorDict(*child);
    if (!node.where().empty()) {
      where = node.where();
      named = i + 1;
    }
  }
}

/// The path of a name that path_of_name() does not find: keys of existing nodes, as many as
/// possible, and the rest of the name, which is a missing key, for messages.
KeyPath path_of_missing(const TensorDict& node, std::string_view name) {
  for (std::size_t end = name.size(); end-- > 0;) {
    if (name[end] != '.') continue;
    const std::optional<TensorDict> child = readable_child(node, name.substr(0, end));
    if (!child) continue;
    KeyPath path = path_of_missing(*child, name.substr(end + 1));
    path.insert(path.begin(), std::string(name.substr(0, end)));
    return path;
  }
  return {std::string(name)};
}

KeyPath path_or_missing(const TensorDict& node, std::string_view name) {
  KeyPath path = path_of_name(node, name);
  return path.empty() ? path_of_missing(node, name) : path;
}

/// A node, and the position of an entry in it.
struct Location {
  TensorDict node;
  std::size_t position;
};

/// The entry at `path`, or nullopt if the path is empty, a key is missing, or a key before the last
/// does not name a readable node.
std::optional<Location> locate(const TensorDict& root, std::span<const std::string> path) {
  TensorDict node = root;
  for (std::size_t i = 0; i < path.size(); ++i) {
    const std::size_t position = node_of(node)->find_or_stem(path[i]);
    if (position == Node::npos) return std::nullopt;
    if (i + 1 == path.size()) return Location{node, position};
    const TensorDict::Item item = node_of(node)->item(position);
    const auto* child = std::get_if<TensorDict>(&item);
    if (child == nullptr || child->info().is_refused()) return std::nullopt;
    node = TensorDict(*child);
  }
  return std::nullopt;
}

/// The item at `path`, or nullopt if locate() returns nullopt. Throws Error(unsupported) if the
/// entry is an unreadable node (NodeInfo::is_refused()).
std::optional<TensorDict::Item> found_at(const TensorDict& root,
                                         std::span<const std::string> path) {
  const std::optional<Location> found = locate(root, path);
  if (!found) return std::nullopt;
  return requested_item(*node_of(found->node), found->position);
}

void visit_leaves(const TensorDict& tree, KeyPath& path,
                  const std::function<void(const KeyPath&, const TensorDict::Item&)>& visit) {
  if (path.size() > kMaxDepth) {
    throw base::invalid_argument(tree.where())
        .problem("nested deeper than ", kMaxDepth, " nodes")
        .remedy("check whether a node contains itself");
  }
  tree.for_each([&](const std::string& key, const TensorDict::Item& item) {
    path.push_back(key);
    if (const auto* child = std::get_if<TensorDict>(&item)) {
      if (!child->info().is_refused()) visit_leaves(*child, path, visit);
    } else {
      visit(path, item);
    }
    path.pop_back();
  });
}

void collect_sources(const Node& node, std::unordered_set<const Node*>& seen,
                     std::unordered_set<std::shared_ptr<LeafSource>>& sources) {
  if (!seen.insert(&node).second) return;
  for (std::size_t i = 0; i < node.entries.size(); ++i) {
    const auto item = node.loaded_item(i);
    if (!item) continue;  // never loaded, so never written to
    if (const auto* leaf = std::get_if<Leaf>(&*item)) {
      if (source_of(*leaf)) sources.insert(source_of(*leaf));
    } else if (const auto* child = std::get_if<TensorDict>(&*item)) {
      collect_sources(*node_of(*child), seen, sources);
    }
  }
}

void set_items(TensorDict& node, const std::vector<Value>& items) {
  for (std::size_t i = 0; i < items.size(); ++i) node.set(std::to_string(i), items[i]);
}

}  // namespace

std::string to_string(NodeKind kind) {
  return std::string(kKindNames[static_cast<std::size_t>(kind)]);
}

std::ostream& operator<<(std::ostream& out, NodeKind kind) { return out << to_string(kind); }

std::optional<NodeKind> node_kind_from_name(std::string_view name) noexcept {
  for (std::size_t i = 0; i < kKindNames.size(); ++i) {
    if (kKindNames[i] == name) return static_cast<NodeKind>(i);
  }
  return std::nullopt;
}

std::string dotted(const KeyPath& path) {
  std::string text;
  for (std::size_t i = 0; i < path.size(); ++i) {
    if (i > 0) text += '.';
    text += path[i];
  }
  return text;
}

std::optional<TensorDict> node_of_value(const Value& value, std::string where) {
  TensorDict node;
  node_of(node)->where = std::move(where);
  if (const auto* object = value.get_if<Value::Object>()) {
    node.info().kind = object->ordered ? NodeKind::ordered_dict : NodeKind::dict;
    node.info().int_keys = object->int_keys;
    node.info().typed_keys = object->typed_keys;
    for (const auto& [key, member] : object->members) node.set(key, member);
  } else if (const auto* list = value.get_if<Value::List>()) {
    node.info().kind = NodeKind::list;
    set_items(node, list->items);
  } else if (const auto* tuple = value.get_if<Value::Tuple>()) {
    node.info().kind = NodeKind::tuple;
    set_items(node, tuple->items);
  } else {
    return std::nullopt;
  }
  return node;
}

TensorDict::TensorDict() : node_(std::make_shared<Node>()) {}

TensorDict::TensorDict(NodeInfo info) : TensorDict() { node_->info = std::move(info); }

const NodeInfo& TensorDict::info() const& { return node_->info; }
NodeInfo& TensorDict::info() & { return node_->info; }
const std::string& TensorDict::where() const { return node_->where; }
std::size_t TensorDict::size() const { return node_->entries.size(); }

std::vector<std::string> TensorDict::keys() const {
  std::vector<std::string> keys;
  keys.reserve(size());
  for (const Node::Entry& entry : node_->entries) keys.push_back(entry.key);
  return keys;
}

bool has_key(const TensorDict& tree, std::string_view key) {
  return node_of(tree)->find_or_stem(key) != Node::npos;
}

TensorDict::Item item_at_key(const TensorDict& tree, std::string_view key) {
  const std::size_t position = node_of(tree)->find_or_stem(key);
  if (position == Node::npos) {
    fail_no_key(place(tree.where(), {}), key, base::did_you_mean(key, tree.keys()));
  }
  return requested_item(*node_of(tree), position);
}

TensorDict TensorDict::dict() { return TensorDict(NodeInfo{.kind = NodeKind::dict}); }

TensorDict TensorDict::dict(std::initializer_list<Entry> entries) {
  TensorDict made = dict();
  for (const Entry& entry : entries) made.set(entry.key, entry.item);
  return made;
}

TensorDict::Entry TensorDict::Iterator::operator*() const {
  return {node_->entries[position_].key, node_->item(position_)};
}

bool TensorDict::contains(std::string_view name) const {
  return node_->find_or_stem(name) != Node::npos || !path_of_name(*this, name).empty();
}

bool TensorDict::contains(const KeyPath& path) const { return locate(*this, path).has_value(); }

std::optional<TensorDict::Item> TensorDict::find(std::string_view name) const {
  return found_at(*this, path_of_name(*this, name));
}

std::optional<TensorDict::Item> TensorDict::find(const KeyPath& path) const {
  return found_at(*this, path);
}

TensorDict::Item TensorDict::get(std::string_view name) const {
  // Fast path: most names are keys.
  const std::size_t position = node_->find_or_stem(name);
  if (position != Node::npos) return requested_item(*node_, position);
  return follow(*this, path_or_missing(*this, name)).item;
}

TensorDict::Item TensorDict::get(const KeyPath& path) const { return follow(*this, path).item; }

Tensor TensorDict::at(std::string_view name) const { return tensor(path_or_missing(*this, name)); }

Tensor TensorDict::tensor(const KeyPath& path) const {
  const Found found = follow(*this, path);
  const auto* leaf = std::get_if<Leaf>(&found.item);
  if (leaf == nullptr) fail_other_kind(found, path.back(), "a tensor");
  return leaf->tensor();
}

TensorDict TensorDict::operator[](std::string_view name) const {
  return (*this)[path_or_missing(*this, name)];
}

TensorDict TensorDict::operator[](const KeyPath& path) const {
  const Found found = follow(*this, path);
  if (const auto* node = std::get_if<TensorDict>(&found.item)) return *node;
  const auto* json = std::get_if<NonTensor>(&found.item);
  std::optional<TensorDict> made;
  if (json != nullptr && !json->is_stack) {
    std::string place = where();
    if (!place.empty()) {
      for (const std::string& key : path) place += '/' + key;
    }
    made = node_of_value(json->value, std::move(place));
  }
  if (!made) fail_other_kind(found, path.back(), "a node");
  return *made;
}

Value TensorDict::value(std::string_view name) const { return value(path_or_missing(*this, name)); }

Value TensorDict::value(const KeyPath& path) const {
  const Found found = follow(*this, path);
  const auto* json = std::get_if<NonTensor>(&found.item);
  if (json == nullptr) fail_other_kind(found, path.back(), "a JSON value");
  return json->value;
}

void TensorDict::set(std::string_view key, Item item) {
  Node::Slot slot =
      std::visit([](auto&& held) { return Node::Slot(std::move(held)); }, std::move(item));
  const std::size_t position = node_->find(key);
  if (position != Node::npos) {
    node_->entries[position].slot = std::move(slot);
    return;
  }
  node_->entries.push_back({std::string(key), std::move(slot)});
  if (node_->index.built()) {
    node_->index.insert(
        key, static_cast<std::uint32_t>(size() - 1),
        [this](std::uint32_t i) -> std::string_view { return node_->entries[i].key; });
  }
  if (node_->info.int_keys && !is_int_key(key)) fit_int_keys(node_->info, keys());
}

void TensorDict::for_each(
    const std::function<void(const std::string& key, const Item& item)>& visit) const {
  for (std::size_t i = 0; i < node_->entries.size(); ++i) {
    const Item item = node_->item(i);
    visit(node_->entries[i].key, item);
  }
}

void TensorDict::for_each_leaf(
    const std::function<void(const KeyPath& path, const Item& item)>& visit) const {
  KeyPath path;
  visit_leaves(*this, path, visit);
}

void TensorDict::flush(Monitor* monitor) const {
  std::unordered_set<const Node*> seen;
  std::unordered_set<std::shared_ptr<LeafSource>> sources;
  collect_sources(*node_, seen, sources);
  for (const auto& source : sources) source->flush(monitor);
}

}  // namespace tenfold

#include <array>
#include <span>
#include <type_traits>
#include <unordered_set>
#include <utility>

#include <tenfold/error.hpp>
#include <tenfold/tensordict.hpp>

#include "base/text.hpp"
#include "core/tree/leaf_source.hpp"
#include "core/tree/node.hpp"

namespace tenfold {
namespace {

constexpr std::array<std::string_view, 9> kKindNames = {"tensordict", "dict",   "ordered_dict",
                                                        "list",       "tuple",  "tensorclass",
                                                        "lazy_stack", "sparse", "opaque"};

/// Prefix of messages: "ckpt: " or, below a named node, "ckpt: node \"model.encoder\": "; may be
/// empty.
std::string place(const std::string& where, std::span<const std::string> below) {
  std::string text = where.empty() ? "" : where + ": ";
  if (!below.empty()) {
    text += "node " + base::quote(dotted(KeyPath(below.begin(), below.end()))) + ": ";
  }
  return text;
}

[[noreturn]] void fail_no_key(const TensorDict& node, const std::string& place,
                              std::string_view key) {
  std::string text = place + "no key " + base::quote(key);
  const std::vector<std::string> keys = node.keys();
  const std::vector<std::string> near = base::near_matches(key, keys);
  for (std::size_t i = 0; i < near.size(); ++i) {
    text += i == 0 ? "; did you mean " : i + 1 == near.size() ? " or " : ", ";
    text += base::quote(near[i]);
  }
  if (!near.empty()) text += "?";
  throw Error(ErrorCode::key_not_found, text);
}

std::string_view what_it_is(const TensorDict::Item& item) {
  return std::holds_alternative<Leaf>(item)        ? "a tensor"
         : std::holds_alternative<NonTensor>(item) ? "a JSON value"
                                                   : "a node";
}

[[noreturn]] void fail_other_kind(const std::string& place, std::string_view key,
                                  std::string_view expected, const TensorDict::Item& item) {
  throw Error(ErrorCode::key_not_found, place + "key " + base::quote(key) + ": expected " +
                                            std::string(expected) + ", found " +
                                            std::string(what_it_is(item)));
}

/// An entry, and the message prefix of the node that contains it.
struct Found {
  TensorDict::Item item;
  std::string place;
};

/// An entry that the user requested by key. Throws if it is refused.
TensorDict::Item asked_for(const TensorDict& node, std::size_t position) {
  TensorDict::Item item = node.node()->item(position);
  const auto* child = std::get_if<TensorDict>(&item);
  if (child != nullptr && child->info().is_refused()) {
    throw Error(ErrorCode::unsupported, child->where() + ": " + child->info().problem);
  }
  return item;
}

/// Follows `path` from `root`. Errors name the missing or wrong key and the node that lacks it.
Found follow(const TensorDict& root, std::span<const std::string> path) {
  if (path.empty()) {
    throw Error(ErrorCode::invalid_argument, place(root.where(), {}) + "the path has no keys");
  }
  TensorDict node = root;
  std::string where = root.where();
  std::size_t named = 0;  // number of keys that `where` includes
  for (std::size_t i = 0;; ++i) {
    const std::string here = place(where, path.subspan(named, i - named));
    const std::size_t position = node.node()->find_or_stem(path[i]);
    if (position == Node::npos) fail_no_key(node, here, path[i]);
    TensorDict::Item item = asked_for(node, position);
    if (i + 1 == path.size()) return {std::move(item), here};
    const auto* child = std::get_if<TensorDict>(&item);
    if (child == nullptr) fail_other_kind(here, path[i], "a node", item);
    node = TensorDict(*child);
    if (!node.where().empty()) {
      where = node.where();
      named = i + 1;
    }
  }
}

void visit_leaves(const TensorDict& tree, KeyPath& path,
                  const std::function<void(const KeyPath&, const TensorDict::Item&)>& visit) {
  if (path.size() > kMaxDepth) {
    throw Error(ErrorCode::invalid_argument, place(tree.where(), {}) + "nested deeper than " +
                                                 std::to_string(kMaxDepth) +
                                                 " nodes; a node may contain itself");
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
      if (leaf->source()) sources.insert(leaf->source());
    } else if (const auto* child = std::get_if<TensorDict>(&*item)) {
      collect_sources(*child->node(), seen, sources);
    }
  }
}

void set_items(TensorDict& node, const std::vector<Value>& items) {
  for (std::size_t i = 0; i < items.size(); ++i) node.set(std::to_string(i), items[i]);
}

/// The entries of a JSON object or array as a node; empty for a scalar.
std::optional<TensorDict> node_of_value(const Value& value) {
  TensorDict node;
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

}  // namespace

std::string_view name(NodeKind kind) noexcept { return kKindNames[static_cast<std::size_t>(kind)]; }

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

TensorDict::TensorDict() : node_(std::make_shared<Node>()) {}

TensorDict::TensorDict(NodeInfo info) : TensorDict() { node_->info = std::move(info); }

const NodeInfo& TensorDict::info() const { return node_->info; }
NodeInfo& TensorDict::info() { return node_->info; }
const std::string& TensorDict::where() const { return node_->where; }
std::size_t TensorDict::size() const { return node_->entries.size(); }

std::vector<std::string> TensorDict::keys() const {
  std::vector<std::string> keys;
  keys.reserve(size());
  for (const Node::Entry& entry : node_->entries) keys.push_back(entry.key);
  return keys;
}

bool TensorDict::contains(std::string_view key) const {
  return node_->find_or_stem(key) != Node::npos;
}

TensorDict::Item TensorDict::get(std::string_view key) const {
  const std::size_t position = node_->find_or_stem(key);
  if (position == Node::npos) fail_no_key(*this, place(where(), {}), key);
  return asked_for(*this, position);
}

TensorDict::Item TensorDict::get(const KeyPath& path) const { return follow(*this, path).item; }

Tensor TensorDict::tensor(const KeyPath& path) const {
  const Found found = follow(*this, path);
  const auto* leaf = std::get_if<Leaf>(&found.item);
  if (leaf == nullptr) fail_other_kind(found.place, path.back(), "a tensor", found.item);
  return leaf->tensor();
}

TensorDict TensorDict::operator[](std::string_view key) const {
  const Item item = get(key);
  if (const auto* node = std::get_if<TensorDict>(&item)) return *node;
  const auto* json = std::get_if<NonTensor>(&item);
  std::optional<TensorDict> made;
  if (json != nullptr && !json->is_stack) made = node_of_value(json->value);
  if (!made) fail_other_kind(place(where(), {}), key, "a node", item);
  if (!where().empty()) made->node()->where = where() + '/' + std::string(key);
  return *made;
}

Value TensorDict::value(std::string_view key) const {
  const Item item = get(key);
  const auto* json = std::get_if<NonTensor>(&item);
  if (json == nullptr) fail_other_kind(place(where(), {}), key, "a JSON value", item);
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

#include "formats/torch_file/node.hpp"

#include <algorithm>
#include <memory>
#include <utility>
#include <variant>

namespace tenfold::detail::formats::torch_file {

using codecs::PickleKind;
using codecs::PickleNode;

namespace {

/// Of the kinds that Python makes without a call.
std::string_view class_of(PickleKind kind) {
  switch (kind) {
    using enum PickleKind;
    case none:
      return "NoneType";
    case boolean:
      return "bool";
    case integer:
    case big_integer:
      return "int";
    case number:
      return "float";
    case text:
    case old_string:
      return "str";
    case bytes:
      return "bytes";
    case bytearray:
      return "bytearray";
    case list:
      return "list";
    case tuple:
      return "tuple";
    case dict:
      return "dict";
    case set:
      return "set";
    case frozenset:
      return "frozenset";
    default:
      return {};
  }
}

template <class Info>
void set_keys(const Pickle& pickle, Children& children, Info& info) {
  const bool are_sound =
      std::move(children.keys).finish(info, [&](std::size_t i) -> const std::string& {
        return children.entries[i].key;
      });
  if (!are_sound) {
    pickle.unsupported(
        "its keys cannot be read: expected different ones, found some that are equal");
  }
}

TensorDict node_of(const Pickle& pickle, Children children, NodeKind kind) {
  auto node = std::make_shared<Node>();
  node->info.kind = kind;
  set_keys(pickle, children, node->info);
  node->info.module_versions = std::move(children.versions);
  node->where = pickle.where();
  for (const std::string& key : pickle.keys) node->where += "/" + key;
  node->entries = std::move(children.entries);
  return TensorDict(std::move(node));
}

}  // namespace

Node::Slot container_of(const Pickle& pickle, Children children, NodeKind kind, bool forced) {
  const bool is_value = kind != NodeKind::opaque && kind != NodeKind::sparse;
  if (children.any_tensor || forced || !is_value) return node_of(pickle, std::move(children), kind);
  if (kind == NodeKind::dict || kind == NodeKind::ordered_dict) {
    Value::Object object;
    set_keys(pickle, children, object);
    object.ordered = kind == NodeKind::ordered_dict;
    for (auto& [key, slot] : children.entries) {
      object.members.emplace_back(std::move(key), std::get<NonTensor>(std::move(slot)).value);
    }
    return NonTensor{Value(std::move(object))};
  }
  std::vector<Value> items;
  items.reserve(children.entries.size());
  for (auto& [key, slot] : children.entries) {
    items.push_back(std::get<NonTensor>(std::move(slot)).value);
  }
  if (kind == NodeKind::tuple) return NonTensor{Value(Value::Tuple{std::move(items)})};
  return NonTensor{Value(Value::List{std::move(items)})};
}

std::string opaque_name(const Pickle& pickle, std::uint32_t id) {
  const PickleNode node = pickle.at(id);
  if (node.kind == PickleKind::persistent) return "persistent id";
  if (const auto known = class_of(node.kind); !known.empty()) return std::string(known);
  if (node.kind == PickleKind::extension) return "extension " + std::to_string(node.integer);
  const PickleNode named = node.kind == PickleKind::global ? node : pickle.at(node.items[0]);
  if (named.kind != PickleKind::global) return "call of " + pickle.describe(node.items[0]);
  return std::string(named.text) + "." + std::string(named.name);
}

}  // namespace tenfold::detail::formats::torch_file

#include "formats/torch_file/tree.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <tenfold/error.hpp>
#include <tenfold/value.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/notes/notes.hpp"
#include "core/tensor/extended_scalar.hpp"
#include "core/tensor/torch_names.hpp"
#include "core/tree/node.hpp"
#include "core/tree/sparse.hpp"
#include "core/tree/typed_keys.hpp"
#include "formats/torch_file/builder.hpp"
#include "formats/torch_file/node.hpp"
#include "formats/torch_file/pickle.hpp"
#include "formats/torch_file/tensor.hpp"
#include "formats/torch_file/value.hpp"

namespace tenfold::detail::formats::torch_file {

using codecs::PickleChange;
using codecs::PickleKind;
using codecs::PickleNode;

TensorDict TreeBuilder::root(std::uint32_t id) {
  force_node_ = true;
  TensorDict tree = bare_tree(object(id));
  if (tree.where().empty()) node_of(tree)->where = pickle_.where().text();
  return tree;
}

TensorDict::Item TreeBuilder::object(std::uint32_t id) {
  Slot converted = convert(id);
  if (auto* leaf = std::get_if<Leaf>(&converted)) return std::move(*leaf);
  if (auto* json = std::get_if<NonTensor>(&converted)) return std::move(*json);
  return std::get<TensorDict>(std::move(converted));
}

Node::Slot TreeBuilder::convert(std::uint32_t id) {
  pickle_.spend(1);
  try {
    return convert_readable(id);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported || is_too_deep_ || pickle_.is_spent()) throw;
    return unreadable(id, error);
  }
}

Node::Slot TreeBuilder::convert_readable(std::uint32_t id) {
  const PickleNode node = pickle_.at(id);
  switch (node.kind) {
    case PickleKind::none:
      return NonTensor{};
    case PickleKind::boolean:
      return NonTensor{Value(node.integer != 0)};
    case PickleKind::integer:
      return NonTensor{Value(node.integer)};
    case PickleKind::big_integer:
      pickle_.spend_bytes(node.text.size());
      return NonTensor{Value(Value::BigInt{std::string(node.text)})};
    case PickleKind::number:
      return NonTensor{Value(node.number)};
    case PickleKind::text:
    case PickleKind::old_string:
      return NonTensor{Value(valid_text(id))};
    case PickleKind::list:
      return container(id, NodeKind::list, [&](Children& to) { add_items(to, node.items); });
    case PickleKind::tuple:
      return container(id, NodeKind::tuple, [&](Children& to) { add_items(to, node.items); });
    case PickleKind::dict:
      return container(id, NodeKind::dict, [&](Children& to) { add_pairs(to, node.items); });
    case PickleKind::set:
      return set_of(id, Value::Special::Type::set, node.items);
    case PickleKind::frozenset:
      return set_of(id, Value::Special::Type::frozenset, node.items);
    case PickleKind::bytes:
      return special(Value::Special::Type::bytes, node.text);
    case PickleKind::bytearray:
      return special(Value::Special::Type::bytearray, node.text);
    case PickleKind::global:
      return of_global(id);
    case PickleKind::reduce:
      return of_call(id);
    case PickleKind::newobj:
    case PickleKind::instance:
    case PickleKind::extension:
    case PickleKind::persistent:
      return opaque(id);
  }
  refuse(id, "");
}

Node::Slot TreeBuilder::special(Value::Special::Type type, std::string_view text) const {
  pickle_.spend_bytes(text.size());
  Value::Special made;
  made.type = type;
  made.text = text;
  return NonTensor{Value(std::move(made))};
}

void TreeBuilder::refuse(std::uint32_t id, const std::string& remedy) const {
  throw pickle_.unsupported()
      .problem("it cannot be read")
      .expected("a tensor, a JSON value or a container")
      .found(pickle_.describe(id))
      .remedy(remedy);
}

bool TreeBuilder::has_valid_text(std::uint32_t id) const {
  const auto text = pickle_.text(id);
  return text && base::is_utf8(*text);
}

std::string TreeBuilder::valid_text(std::uint32_t id) const {
  const auto text = pickle_.text(id);
  pickle_.spend_bytes(text ? text->size() : 0);
  if (!text || !base::is_utf8(*text)) {
    throw pickle_.unsupported()
        .problem("a string cannot be read")
        .expected("UTF-8")
        .found(base::quote(pickle_.at(id).text));
  }
  return std::string(*text);
}

Node::Slot TreeBuilder::of_global(std::uint32_t id) {
  const PickleNode node = pickle_.at(id);
  if (node.text != "torch") return opaque(id);
  if (is_torch_dtype(node.name)) {
    return special(Value::Special::Type::dtype, "torch." + std::string(node.name));
  }
  if (is_torch_qscheme(node.name)) {
    return special(Value::Special::Type::qscheme, "torch." + std::string(node.name));
  }
  return opaque(id);
}

Node::Slot TreeBuilder::of_call(std::uint32_t id) {
  const auto call = pickle_.call(id);
  if (!call) return opaque(id);
  return call->module == "collections" ? of_collections(id, *call) : of_other_call(id, *call);
}

Node::Slot TreeBuilder::of_other_call(std::uint32_t id, const Pickle::Call& call) {
  if (is_jagged(call)) return jagged(call);
  if (is_meta_parameter(call)) return meta_parameter(call);
  if (const auto inner = quantized_call(call)) return quantized(id, *inner);
  if (std::optional<Leaf> leaf = tensors_.leaf(id, call)) return *std::move(leaf);
  if (auto made = special_value(pickle_, id, call)) {
    return NonTensor{Value(*std::move(made))};
  }
  for (const auto type : {Value::Special::Type::set, Value::Special::Type::frozenset}) {
    if (is_builtin(call, to_string(type))) return called_set(id, type, call);
  }
  if (call.is("torch._utils", "_rebuild_sparse_tensor")) return sparse(call);
  if (call.is("torch._utils", "_rebuild_nested_tensor")) {
    return nested_tensor(pickle_, tensors_, call);
  }
  return opaque(id);
}

Node::Slot TreeBuilder::called_set(std::uint32_t id, Value::Special::Type type,
                                   const Pickle::Call& call) {
  pickle_.require_arguments(call, 0, 1);
  if (call.arguments.empty()) return set_of(id, type, {});
  const PickleNode items = pickle_.at(call.arguments[0]);
  if (items.kind != PickleKind::list && items.kind != PickleKind::tuple) return opaque(id);
  return set_of(id, type, items.items);
}

Node::Slot TreeBuilder::set_of(std::uint32_t id, Value::Special::Type type,
                               std::span<const std::uint32_t> items) {
  force_node_ = false;  // a set becomes a value even at the root
  Value::Special set;
  set.type = type;
  Slot converted = container(id, NodeKind::list, [&](Children& to) { add_items(to, items); });
  auto* value = std::get_if<NonTensor>(&converted);
  if (value != nullptr) {
    set.items = std::move(std::get<Value::List>(value->value.data()).items);
    if (is_valid(set)) return NonTensor{Value(std::move(set))};
  }
  Children parts;
  if (value != nullptr) converted = NonTensor{Value(Value::List{std::move(set.items)})};
  parts.entries.push_back({"items", std::move(converted)});
  return opaque_node(id, std::move(parts),
                     "a set with items that are not supported in a set: expected hashable values, "
                     "found " +
                         std::string(value == nullptr ? "tensors or objects" : "unhashable ones"));
}

Node::Slot TreeBuilder::of_collections(std::uint32_t id, const Pickle::Call& call) {
  if (call.name == "OrderedDict") {
    pickle_.require_arguments(call, 0, 1);
    return container(id, NodeKind::ordered_dict, [&](Children& to) {
      if (!call.arguments.empty()) add_listed_pairs(to, call.arguments[0]);
      add_changes(to, id);
    });
  }
  if (call.name == "defaultdict") {
    pickle_.require_arguments(call, 0, 1);
    if (!call.arguments.empty()) check_factory(pickle_, call.arguments[0]);
    return container(id, NodeKind::dict, [&](Children& to) { add_changes(to, id); });
  }
  if (call.name == "Counter") return counter(id, call);
  return opaque(id);
}

Node::Slot TreeBuilder::counter(std::uint32_t id, const Pickle::Call& call) {
  pickle_.require_arguments(call, 0, 1);
  force_node_ = false;
  Slot counts = container(id, NodeKind::dict, [&](Children& to) {
    if (!call.arguments.empty()) {
      const PickleNode given = pickle_.at(call.arguments[0]);
      if (given.kind != PickleKind::dict) refuse(call.arguments[0], "");
      add_pairs(to, given.items);
    }
    add_changes(to, id);
  });
  auto* value = std::get_if<NonTensor>(&counts);
  if (value == nullptr) return counts;  // it has tensors or opaque nodes
  Value::Special special;
  special.type = Value::Special::Type::counter;
  special.items.push_back(std::move(value->value));
  return NonTensor{Value(std::move(special))};
}

void TreeBuilder::add(Children& to, std::string key, std::uint32_t value) {
  pickle_.keys.push_back(std::move(key));
  Slot converted = convert(value);
  to.any_tensor |= !std::holds_alternative<NonTensor>(converted);
  to.entries.push_back({std::move(pickle_.keys.back()), std::move(converted)});
  pickle_.keys.pop_back();
}

void TreeBuilder::add_items(Children& to, std::span<const std::uint32_t> items) {
  to.entries.reserve(to.entries.size() + items.size());
  std::size_t position = 0;
  for (const std::uint32_t item : items) add(to, std::to_string(position++), item);
}

void TreeBuilder::reserve(Children& to, std::size_t more) {
  to.entries.reserve(to.entries.size() + more);
  to.positions.reserve(to.entries.size() + more);
}

void TreeBuilder::add_pairs(Children& to, std::span<const std::uint32_t> items) {
  reserve(to, items.size() / 2);
  for (std::size_t i = 0; i + 1 < items.size(); i += 2) add_pair(to, items[i], items[i + 1]);
}

void TreeBuilder::add_listed_pairs(Children& to, std::uint32_t list) {
  const PickleNode pairs = pickle_.at(list);
  if (pairs.kind != PickleKind::list) refuse(list, "");
  for (const std::uint32_t item : pairs.items) {
    const PickleNode pair = pickle_.at(item);
    const bool fits =
        (pair.kind == PickleKind::list || pair.kind == PickleKind::tuple) && pair.items.size() == 2;
    if (!fits) refuse(item, "");
    add_pair(to, pair.items[0], pair.items[1]);
  }
}

void TreeBuilder::add_changes(Children& to, std::uint32_t id) {
  const std::span<const PickleChange> changes = pickle_.changes(id);
  reserve(to, changes.size());
  for (const PickleChange& change : changes) {
    if (change.kind == PickleChange::Kind::set_item) {
      add_pair(to, change.key, change.value);
    } else if (change.kind == PickleChange::Kind::state) {
      add_attributes(to, change.value);
    } else {
      throw pickle_.corrupt()
          .problem("items without keys are added to a dict")
          .expected("pairs of a key and a value")
          .found("single items");
    }
  }
}

void TreeBuilder::add_attributes(Children& to, std::uint32_t id) {
  const PickleNode state = pickle_.at(id);
  const bool is_dict = state.kind == PickleKind::dict;
  bool others = !is_dict;
  for (std::size_t i = 0; is_dict && i + 1 < state.items.size(); i += 2) {
    if (pickle_.text(state.items[i]) != "_metadata") {
      others = true;
      continue;
    }
    Slot versions = convert(state.items[i + 1]);
    auto* value = std::get_if<NonTensor>(&versions);
    if (value == nullptr || !value->value.is<Value::Object>()) {
      others = true;
      continue;
    }
    std::get<Value::Object>(value->value.data()).ordered = false;
    to.versions = std::move(value->value);
  }
  if (!others) return;
  warn(pickle_.place().text() +
       ": attributes of the dict are ignored: expected only \"_metadata\", a dict of JSON values, "
       "found others");
}

void TreeBuilder::add_pair(Children& to, std::uint32_t key, std::uint32_t value) {
  const PickleNode node = pickle_.at(key);
  const bool is_int = node.kind == PickleKind::integer || node.kind == PickleKind::big_integer;
  const bool is_text = node.kind == PickleKind::text || node.kind == PickleKind::old_string;
  std::optional<Value> typed;
  if (is_text ? !has_valid_text(key) : !is_int && !(typed = typed_key(key))) {
    to.unreadable.push_back({key, value,
                             is_text ? "its key cannot be read: expected a string that is valid "
                                       "Unicode, found a string that is not"
                                     : "its key cannot be read: expected a string, a number, a "
                                       "bool, None or a tuple of these, found " +
                                           pickle_.describe(key)});
    return;
  }
  std::string text = node.kind == PickleKind::integer ? std::to_string(node.integer)
                     : is_int                         ? std::string(node.text)
                     : is_text                        ? valid_text(key)
                                                      : key_text(*typed);
  const std::uint32_t known =
      to.positions.insert(text, static_cast<std::uint32_t>(to.entries.size()),
                          [&](std::uint32_t at) -> std::string_view { return to.entries[at].key; });
  if (known != KeyIndex::kNone &&
      (to.keys.is_text(known) != is_text || (typed && has_nan(*typed)))) {
    to.unreadable.push_back({key, value,
                             "its key has the same string as another key: expected different "
                             "strings, found " +
                                 base::quote(text) + " again"});
    return;
  }
  if (known == KeyIndex::kNone) {
    if (is_int) {
      to.keys.add_int();
    } else if (is_text) {
      to.keys.add_text();
    } else {
      to.keys.add(text, *std::move(typed));
    }
  }
  add(to, std::move(text), value);
  if (known == KeyIndex::kNone) return;
  to.entries[known] = std::move(to.entries.back());
  to.entries.pop_back();
}

std::optional<Value> TreeBuilder::typed_key(std::uint32_t id) {
  const PickleNode node = pickle_.at(id);
  pickle_.spend(1);
  pickle_.spend_bytes(node.text.size());
  switch (node.kind) {
    case PickleKind::none:
      return Value();
    case PickleKind::boolean:
      return Value(node.integer != 0);
    case PickleKind::integer:
      return Value(node.integer);
    case PickleKind::big_integer:
      return Value(Value::BigInt{std::string(node.text)});
    case PickleKind::number:
      return Value(node.number);
    case PickleKind::tuple:
      break;
    default:
      return std::nullopt;
  }
  Value::Tuple tuple;
  for (const std::uint32_t item : node.items) {
    const PickleKind kind = pickle_.at(item).kind;
    const bool is_text = kind == PickleKind::text || kind == PickleKind::old_string;
    if (is_text && !has_valid_text(item)) return std::nullopt;
    std::optional<Value> part = is_text ? Value(valid_text(item)) : typed_key(item);
    if (!part) return std::nullopt;
    tuple.items.push_back(*std::move(part));
  }
  return Value(std::move(tuple));
}

TensorDict build_tree(const codecs::PickleGraph& graph, const std::shared_ptr<Storages>& storages,
                      const base::Where& where) {
  return TreeBuilder(graph, storages, where).root(graph.root);
}

TensorDict::Item build_object(const codecs::PickleGraph& graph,
                              const std::shared_ptr<Storages>& storages, const base::Where& where) {
  return TreeBuilder(graph, storages, where).object(graph.root);
}

namespace {

/// Returns the name of the Python type of nodes of this kind; empty for global, extension and
/// persistent nodes, and for objects that a call creates.
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
  const bool are_valid =
      std::move(children.keys).finish(info, [&](std::size_t i) -> const std::string& {
        return children.entries[i].key;
      });
  if (!are_valid) {
    throw pickle.unsupported()
        .problem("its keys cannot be read")
        .expected("different ones")
        .found("some that are equal");
  }
}

TensorDict node_of(const Pickle& pickle, Children children, NodeKind kind) {
  auto node = std::make_shared<Node>();
  node->info.kind = kind;
  set_keys(pickle, children, node->info);
  node->info.module_versions = std::move(children.versions);
  node->where = pickle.where().text();
  for (const std::string& key : pickle.keys) node->where += "/" + key;
  pickle.spend_bytes(node->where.size());
  node->entries = std::move(children.entries);
  return tensordict_of(std::move(node));
}

}  // namespace

Node::Slot container_of(const Pickle& pickle, Children children, NodeKind kind, bool forced) {
  const bool is_value = kind != NodeKind::opaque && kind != NodeKind::sparse && !children.versions;
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
  pickle.spend_bytes(named.text.size() + named.name.size());
  return std::string(named.text) + "." + std::string(named.name);
}

using Special = Value::Special;

namespace {

Special of_text(Special::Type type, std::string text) {
  Special special;
  special.type = type;
  special.text = std::move(text);
  return special;
}

double real(const Pickle& pickle, std::uint32_t id) {
  const PickleNode node = pickle.at(id);
  if (node.kind == PickleKind::number) return node.number;
  if (node.kind == PickleKind::integer) return static_cast<double>(node.integer);
  throw pickle.corrupt().part("complex").expected("two numbers").found(pickle.describe(id));
}

std::string text(const Pickle& pickle, std::uint32_t id, const std::string& subject) {
  const auto found = pickle.text(id);
  if (found && base::is_utf8(*found)) return std::string(*found);
  throw pickle.corrupt().part(subject).expected("a UTF-8 string").found(pickle.describe(id));
}

/// Parses the calls bytearray(), bytearray(bytes) and bytearray(text, "latin-1"). Returns nullopt
/// for other arguments.
std::optional<Special> bytearray(const Pickle& pickle, const Pickle::Call& call) {
  pickle.require_arguments(call, 0, 2);
  if (call.arguments.empty()) return of_text(Special::Type::bytearray, "");
  auto bytes = call.arguments.size() == 1 ? pickle.bytes(call.arguments[0])
                                          : pickle.latin1(call.arguments[0], call.arguments[1]);
  if (!bytes) return std::nullopt;
  return of_text(Special::Type::bytearray, *std::move(bytes));
}

/// A torch.Size may have negative items, as in torch.Size([-1, 3]) for a view.
Special torch_size(const Pickle& pickle, std::uint32_t id) {
  const PickleNode items = pickle.at(id);
  if (items.kind != PickleKind::tuple && items.kind != PickleKind::list) {
    throw pickle.corrupt().part("torch.Size").expected("a tuple").found(pickle.describe(id));
  }
  pickle.spend(items.items.size());
  Special size = of_text(Special::Type::size, "");
  for (const std::uint32_t item : items.items) {
    const PickleNode length = pickle.at(item);
    if (length.kind != PickleKind::integer) {
      throw pickle.corrupt().part("torch.Size").expected("integers").found(pickle.describe(item));
    }
    size.items.emplace_back(length.integer);
  }
  return size;
}

Special device(const Pickle& pickle, const Pickle::Call& call) {
  pickle.require_arguments(call, 1, 2);
  std::string name = text(pickle, call.arguments[0], "device");
  if (call.arguments.size() == 2) {
    name += ":" + std::to_string(pickle.natural(call.arguments[1], "device index"));
  }
  if (!is_torch_device(name)) {
    throw pickle.corrupt()
        .part("device")
        .expected("a type and optionally an index of at most 127, as in \"cuda:0\"")
        .found(base::quote(name));
  }
  return of_text(Special::Type::device, std::move(name));
}

}  // namespace

bool is_builtin(const Pickle::Call& call, std::string_view name) {
  return call.name == name && (call.module == "builtins" || call.module == "__builtin__");
}

std::optional<Special> special_value(const Pickle& pickle, std::uint32_t id,
                                     const Pickle::Call& call) {
  if (call.is("torch", "Size")) {
    pickle.require_arguments(call, 1, 1);
    return torch_size(pickle, call.arguments[0]);
  }
  if (call.is("torch", "device")) return device(pickle, call);
  if (call.is("torch.serialization", "_get_layout")) {
    pickle.require_arguments(call, 1, 1);
    std::string name = text(pickle, call.arguments[0], "layout");
    if (!is_torch_layout(name)) {
      throw pickle.corrupt()
          .part("layout")
          .expected("a layout of torch, such as \"torch.strided\"")
          .found(base::quote(name));
    }
    return of_text(Special::Type::layout, std::move(name));
  }
  if (is_builtin(call, "complex")) {
    pickle.require_arguments(call, 2, 2);
    Special number = of_text(Special::Type::complex, "");
    for (const std::uint32_t part : call.arguments) number.items.emplace_back(real(pickle, part));
    return number;
  }
  if (is_builtin(call, "bytearray")) return bytearray(pickle, call);
  if (auto bytes = pickle.bytes(id)) return of_text(Special::Type::bytes, *std::move(bytes));
  return std::nullopt;
}

void check_factory(const Pickle& pickle, std::uint32_t id) {
  const PickleNode node = pickle.at(id);
  if (node.kind == PickleKind::none) return;
  const bool plain =
      node.kind == PickleKind::global &&
      (node.text == "builtins" || node.text == "__builtin__" || node.text == "collections");
  if (plain) {
    // Protocol 2, the default of torch.save, names int and str as Python 2 did: long and unicode.
    for (const char* name :
         {"list", "dict", "set", "frozenset", "tuple", "bool", "int", "long", "float", "complex",
          "str", "unicode", "bytes", "bytearray", "OrderedDict", "Counter"}) {
      if (node.name == name) return;
    }
  }
  if (node.kind == PickleKind::global) pickle.refuse_global(node.text, node.name);
  throw pickle.unsupported()
      .part("default_factory of a defaultdict")
      .expected("None or a known class of Python, such as list")
      .found(pickle.describe(id));
}

// Opaque nodes. They describe what a tree cannot represent: objects that a pickle creates by calls
// of unknown functions, classes and functions themselves, unsupported values of known types, and
// items of a dict whose key is not supported. Nothing is called.

namespace {

/// Returns why a tensor on the meta device cannot be read; empty for another class.
std::string problem_of(std::string_view class_name) {
  const std::string found = "found " + base::quote(std::string(class_name));
  if (class_name == kMetaTensor) {
    return "a tensor on the meta device has no bytes: expected one that is in memory, " + found;
  }
  return {};
}

}  // namespace

Node::Slot TreeBuilder::unreadable(std::uint32_t id, const Error& error) {
  // The problem omits the file and the key, because messages about the node name them anyway.
  const std::string outer = pickle_.subject() + ": ";
  const bool has_inner = error.part().starts_with(outer);
  std::string problem =
      (has_inner ? error.part().substr(outer.size()) + ": " : "") + error.message();
  const PickleNode node = pickle_.at(id);
  if (open_[id]) return opaque_node(id, {}, std::move(problem));  // it contains itself
  switch (node.kind) {
    case PickleKind::global:
    case PickleKind::reduce:
    case PickleKind::newobj:
    case PickleKind::instance:
    case PickleKind::extension:
    case PickleKind::persistent: {
      Slot made = opaque(id);
      std::get<TensorDict>(made).info().problem = std::move(problem);
      return made;
    }
    case PickleKind::text:
      return opaque_node(id, text_parts(node.text), std::move(problem));
    default:
      return opaque_node(id, {}, std::move(problem));
  }
}

Children TreeBuilder::text_parts(std::string_view bytes) {
  Value::Special held;
  held.type = Value::Special::Type::bytes;
  held.text = bytes;
  Value::Tuple arguments{{Value(std::move(held)), Value("utf-8"), Value("surrogatepass")}};
  Children parts;
  parts.entries.push_back({"args", NonTensor{Value(std::move(arguments))}});
  return parts;
}

Node::Slot TreeBuilder::opaque_node(std::uint32_t id, Children parts, std::string problem) {
  Slot made = container_of(pickle_, std::move(parts), NodeKind::opaque, false);
  NodeInfo& info = std::get<TensorDict>(made).info();
  info.class_name = opaque_name(pickle_, id);
  info.problem = std::move(problem);
  return made;
}

Node::Slot TreeBuilder::opaque(std::uint32_t id) {
  const PickleNode node = pickle_.at(id);
  Slot made = container(id, NodeKind::opaque, [&](Children& to) {
    if (node.kind == PickleKind::global || node.kind == PickleKind::extension) return;
    if (node.kind == PickleKind::persistent) {
      add(to, "args", node.items[0]);
      return;
    }
    if (pickle_.at(node.items[0]).kind != PickleKind::global) add(to, "callable", node.items[0]);
    add(to, "args", node.items[1]);
    if (node.items.size() > 2) add(to, "kwargs", node.items[2]);
    add_history(to, id);
  });
  NodeInfo& info = std::get<TensorDict>(made).info();
  info.class_name = opaque_name(pickle_, id);
  info.problem = problem_of(info.class_name);
  return made;
}

void TreeBuilder::add_history(Children& to, std::uint32_t id) {
  std::vector<std::uint32_t> items;
  std::vector<std::uint32_t> pairs;
  std::optional<std::uint32_t> state;
  for (const PickleChange& change : pickle_.changes(id)) {
    if (change.kind == PickleChange::Kind::state) {
      state = change.value;
    } else if (change.kind == PickleChange::Kind::set_item) {
      pairs.insert(pairs.end(), {change.key, change.value});
    } else {
      items.push_back(change.value);
    }
  }
  if (!items.empty()) add_list(to, "items", items);
  if (!pairs.empty()) add_list(to, "entries", pairs);
  if (state) add(to, "state", *state);
}

void TreeBuilder::add_list(Children& to, const std::string& key,
                           const std::vector<std::uint32_t>& items) {
  pickle_.keys.push_back(key);
  Children list;
  add_items(list, items);
  pickle_.keys.pop_back();
  Slot made = container_of(pickle_, std::move(list), NodeKind::list, false);
  to.entries.push_back({key, std::move(made)});
}

void TreeBuilder::add_unreadable_pairs(Children& to) {
  for (auto& [key, value, problem] : std::exchange(to.unreadable, {})) {
    const std::string shown = opaque_name(pickle_, key);
    std::string name = "<" + shown + ">";
    const auto position = static_cast<std::uint32_t>(to.entries.size());
    const auto key_at = [&](std::uint32_t at) -> std::string_view { return to.entries[at].key; };
    for (std::size_t i = position; to.positions.insert(name, position, key_at) != KeyIndex::kNone;
         ++i) {
      name = "<" + shown + " " + std::to_string(i) + ">";
    }
    pickle_.keys.push_back(name);
    Children parts;
    add(parts, "key", key);
    add(parts, "value", value);
    Slot made = opaque_node(key, std::move(parts), std::move(problem));
    pickle_.keys.pop_back();
    to.any_tensor = true;
    to.keys.add_text();
    to.entries.push_back({std::move(name), std::move(made)});
  }
}

}  // namespace tenfold::detail::formats::torch_file

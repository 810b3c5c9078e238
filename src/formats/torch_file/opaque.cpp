#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/text.hpp"
#include "core/tensor/special.hpp"
#include "formats/torch_file/builder.hpp"

// What a pickle would have made by calls that are not known, and what of known kinds cannot be
// read: shown, and nothing is called.

namespace tenfold::detail::formats::torch_file {

using codecs::PickleChange;
using codecs::PickleKind;
using codecs::PickleNode;

namespace {

/// What is wrong with tensors of torch's own that are not read; empty for another class.
std::string problem_of(std::string_view class_name) {
  const std::string found = "found " + base::quote(std::string(class_name));
  if (class_name == kMetaTensor) {
    return "a tensor on the meta device has no bytes: expected one that is in memory, " + found;
  }
  if (class_name == "torch._utils._rebuild_qtensor") {
    return "a quantized tensor cannot be read: expected a plain one, " + found +
           "; dequantize() it before it is saved";
  }
  return {};
}

}  // namespace

Node::Slot TreeBuilder::unreadable(std::uint32_t id, std::string problem) {
  const std::string prefix = pickle_.where() + ": " + pickle_.subject() + ": ";
  if (problem.starts_with(prefix)) problem.erase(0, prefix.size());
  const PickleNode node = pickle_.at(id);
  if (open_[id]) return opaque_node(id, {}, std::move(problem));  // it lies in itself
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
    to.entries.push_back({std::move(name), std::move(made)});
  }
}

}  // namespace tenfold::detail::formats::torch_file

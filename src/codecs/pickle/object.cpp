#include <array>
#include <span>

#include <fmt/format.h>

#include "base/text.hpp"
#include "codecs/pickle/machine.hpp"
#include "codecs/pickle/text.hpp"

// The opcodes for containers, globals and calls.

namespace tenfold::codecs {

using enum PickleKind;

bool PickleMachine::step_container(unsigned char opcode) {
  switch (opcode) {
    case ']':
      push_empty(list);
      return true;
    case '}':
      push_empty(dict);
      return true;
    case 0x8f:
      push_empty(set);
      return true;
    case 'l':
      push_growing(list, pop_to_mark());
      return true;
    case 0x91:
      push_fixed(frozenset, pop_to_mark());
      return true;
    case 0x87:
      push_fixed(tuple, pop(3));
      return true;
    case 'd': {
      const auto pairs = pop_to_mark();
      require_pairs(pairs);
      push_growing(dict, pairs);
      return true;
    }
    case 'a': {
      const auto value = pop(1);
      append(top(), value);
      return true;
    }
    case 'e': {
      const auto values = pop_to_mark();
      append(top(), values);
      return true;
    }
    case 0x90: {
      const auto values = pop_to_mark();
      add(top(), values);
      return true;
    }
    case 's': {
      const auto pair = pop(2);
      set_items(top(), pair);
      return true;
    }
    case 'u': {
      const auto pairs = pop_to_mark();
      set_items(top(), pairs);
      return true;
    }
    default:
      return false;
  }
}

void PickleMachine::append(std::uint32_t target, std::span<const std::uint32_t> values) {
  PickleNodes& nodes = graph_.nodes;
  if (nodes.kind(target) == list) {
    nodes.set_items(target, graph_.ids.appended(nodes.items(target), values));
    return;
  }
  if (!is_object(target)) wrong("no items can be added", "a list or an object", target);
  for (const std::uint32_t value : values) {
    graph_.changes.push_back({PickleChange::Kind::append, target, 0, value});
  }
}

void PickleMachine::add(std::uint32_t target, std::span<const std::uint32_t> values) {
  PickleNodes& nodes = graph_.nodes;
  if (nodes.kind(target) == set) {
    nodes.set_items(target, graph_.ids.appended(nodes.items(target), values));
    return;
  }
  if (!is_object(target)) wrong("no items can be added", "a set or an object", target);
  for (const std::uint32_t value : values) {
    graph_.changes.push_back({PickleChange::Kind::add, target, 0, value});
  }
}

void PickleMachine::require_pairs(std::span<const std::uint32_t> pairs) const {
  if (pairs.size() % 2 == 0) return;
  corrupt("a key has no value", "pairs", fmt::format("{}", pairs.size()));
}

void PickleMachine::set_items(std::uint32_t target, std::span<const std::uint32_t> pairs) {
  require_pairs(pairs);
  PickleNodes& nodes = graph_.nodes;
  if (nodes.kind(target) == dict) {
    nodes.set_items(target, graph_.ids.appended(nodes.items(target), pairs));
    return;
  }
  if (!is_object(target)) wrong("no items can be set", "a dict or an object", target);
  for (std::size_t i = 0; i < pairs.size(); i += 2) {
    graph_.changes.push_back({PickleChange::Kind::set_item, target, pairs[i], pairs[i + 1]});
  }
}

bool PickleMachine::step_object(unsigned char opcode) {
  switch (opcode) {
    case 'c': {
      const std::string_view module = line();
      push_global(module, line());
      return true;
    }
    case 0x93:
      push_stack_global();
      return true;
    case 0x82:
      push_new_integer(extension, static_cast<std::int64_t>(unsigned_of(1)));
      return true;
    case 0x83:
      push_new_integer(extension, static_cast<std::int64_t>(unsigned_of(2)));
      return true;
    case 0x84:
      push_new_integer(extension, static_cast<std::int64_t>(size_of_int32()));
      return true;
    case 0x81:
      push_object(newobj, pop(2));
      return true;
    case 0x92:
      push_object(newobj, pop(3));
      return true;
    case 'i': {
      const std::string_view module = line();
      const std::string_view name = line();
      push_fixed(tuple, pop_to_mark());
      const std::uint32_t arguments = pop();
      push_global(module, name);
      push_instance(pop(), arguments);
      return true;
    }
    case 'o': {
      const auto parts = pop_to_mark();
      if (parts.empty()) corrupt("an object without a class", "a class after MARK", "none");
      const std::uint32_t cls = parts.front();
      push_fixed(tuple, parts.subspan(1));
      push_instance(cls, pop());
      return true;
    }
    case 'b':
      build();
      return true;
    case 'P':
      push_text(text, line());
      push_fixed(persistent, pop(1));
      return true;
    default:
      return false;
  }
}

void PickleMachine::push_global(std::string_view module, std::string_view name) {
  if (module.empty() || name.empty() || !is_pickle_text(module) || !is_pickle_text(name)) {
    corrupt("invalid global", "a module and a name",
            base::quote(module) + " and " + base::quote(name));
  }
  push_next();
  graph_.nodes.add_global(opcode_at_, module, name);
}

void PickleMachine::push_stack_global() {
  const auto parts = pop(2);
  for (const std::uint32_t part : parts) {
    if (graph_.nodes.kind(part) != text) wrong("invalid global", "text", part);
  }
  push_global(graph_.nodes[parts[0]].text, graph_.nodes[parts[1]].text);
}

/// Creates a call node from a callable, a tuple of arguments and, with three items, a dict of
/// keyword arguments.
void PickleMachine::push_object(PickleKind kind, std::span<const std::uint32_t> items) {
  if (graph_.nodes.kind(items[1]) != tuple) wrong("arguments of a call", "a tuple", items[1]);
  if (items.size() > 2 && graph_.nodes.kind(items[2]) != dict) {
    wrong("named arguments of a call", "a dict", items[2]);
  }
  const PickleKind callable = graph_.nodes.kind(items[0]);
  // Old files of torch call persistent IDs, which stand for modules.
  const bool is_named = callable == global || callable == extension || callable == persistent;
  if (!is_named && !is_object(items[0])) {
    wrong("not callable", "a global, extension code, persistent id or object", items[0]);
  }
  push_fixed(kind, items);
}

void PickleMachine::push_instance(std::uint32_t cls, std::uint32_t arguments) {
  push_object(instance, std::array{cls, arguments});
}

void PickleMachine::build() {
  const std::uint32_t state = pop();
  const std::uint32_t target = top();
  if (!is_object(target)) {
    unsupported("a state set on a non-object", "an object", describe(graph_.nodes.kind(target)));
  }
  graph_.changes.push_back({PickleChange::Kind::state, target, 0, state});
}

}  // namespace tenfold::codecs

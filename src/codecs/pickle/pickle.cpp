#include "codecs/pickle/pickle.hpp"

#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "codecs/pickle/state.hpp"
#include "codecs/pickle/text.hpp"

namespace tenfold::codecs {

using enum PickleKind;

/// Executes the opcodes of a pickle as Python's pickletools documents them, but creates nodes where
/// Python would import a name or call a function. Accepts every pickle that Python's unpickler
/// accepts, except those that read_pickle() refuses as unsupported and some unusual ones, such as
/// pickles with several values on the stack at STOP, with items set in a list or appended to a
/// bytearray, or with a named tuple as the arguments of a call.
class PickleMachine : private PickleState {
 public:
  using PickleState::PickleState;
  using PickleState::reserve_nodes;

  /// Returns the nodes created so far.
  PickleGraph take_prefix() {
    graph_.size_bytes = at_;
    return std::move(graph_);
  }

  PickleGraph run() {
    while (step()) {
    }
    if (stack_.size() != 1 || !marks_.empty()) {
      corrupt("STOP: not one value", "one value on the stack",
              fmt::format("{} values and {} marks", stack_.size(), marks_.size()));
    }
    graph_.root = stack_.front();
    graph_.size_bytes = at_;
    require_pickle_depth(graph_, where_, limits_);
    return std::move(graph_);
  }

 private:
  bool step();
  bool step_frequent(unsigned char opcode);
  bool step_number(unsigned char opcode);
  bool step_text(unsigned char opcode);
  bool step_container(unsigned char opcode);
  bool step_object(unsigned char opcode);
  bool step_stack(unsigned char opcode);
  void push_int_line();
  void push_long_line();
  void push_decimal(std::string_view digits, std::string_view written, std::string_view expected);
  void push_long(std::uint64_t size);
  void push_global(std::string_view module, std::string_view name);
  void push_stack_global();
  void push_object(PickleKind kind, std::span<const std::uint32_t> items);
  void push_instance(std::uint32_t cls, std::uint32_t arguments);
  void append(std::uint32_t target, std::span<const std::uint32_t> values);
  void add(std::uint32_t target, std::span<const std::uint32_t> values);
  void set_items(std::uint32_t target, std::span<const std::uint32_t> pairs);
  void require_pairs(std::span<const std::uint32_t> pairs) const;
  void build();
};

// --- the stack and the memo ---

/// Executes one opcode. Returns false at STOP.
bool PickleMachine::step() {
  opcode_at_ = at_;
  const auto opcode = static_cast<unsigned char>(take(1).front());
  if (opcode == '.') return false;
  if (!step_frequent(opcode) && !step_stack(opcode) && !step_number(opcode) && !step_text(opcode) &&
      !step_container(opcode) && !step_object(opcode)) {
    corrupt("no such opcode", "one of protocols 0 to 5", fmt::format("{:#04x}", opcode));
  }
  return true;
}

/// Executes `opcode` if it is one of those that make up nearly all of a checkpoint's pickle.
/// Otherwise returns false.
bool PickleMachine::step_frequent(unsigned char opcode) {
  switch (opcode) {
    case '(':
      push_mark();
      return true;
    case ')':
      push_empty(tuple);
      return true;
    case 'h':
      get(unsigned_of(1));
      return true;
    case 'j':
      get(unsigned_of(4));
      return true;
    case 'q':
      put(unsigned_of(1));
      return true;
    case 'r':
      put(unsigned_of(4));
      return true;
    case 't':
      push_fixed(tuple, pop_to_mark());
      return true;
    case 'K':
      push_integer(static_cast<std::int64_t>(unsigned_of(1)));
      return true;
    case 'M':
      push_integer(static_cast<std::int64_t>(unsigned_of(2)));
      return true;
    case 'Q':
      push_fixed(persistent, pop(1));
      return true;
    case 'R':
      push_object(reduce, pop(2));
      return true;
    case 'X':
      push_text(text, take(unsigned_of(4)));
      return true;
    case 0x85:
      push_fixed(tuple, pop(1));
      return true;
    case 0x86:
      push_fixed(tuple, pop(2));
      return true;
    case 0x89:
      push_constant(boolean, 0);
      return true;
    default:
      return false;
  }
}

bool PickleMachine::step_stack(unsigned char opcode) {
  switch (opcode) {
    case 0x80:  // PROTO
      if (const std::uint64_t protocol = unsigned_of(1); protocol > 5) {
        unsupported("unknown protocol", "at most 5", fmt::format("{}", protocol));
      }
      return true;
    case 0x95:  // FRAME: only a hint for buffered readers
      if (const std::uint64_t size = unsigned_of(8); size > bytes_.size() - at_) {
        corrupt("a frame is truncated", fmt::format("{} bytes", size),
                fmt::format("{}", bytes_.size() - at_));
      }
      return true;
    case '0':  // POP, which may pop a mark
      if (!marks_.empty() && marks_.back() == stack_.size()) {
        marks_.pop_back();
      } else {
        pop();
      }
      return true;
    case '1':
      pop_to_mark();
      return true;
    case '2':
      push(top());
      return true;
    case 'p':
      put(slot_of_line());
      return true;
    case 0x94:
      put(memo_size());
      return true;  // MEMOIZE
    case 'g':
      get(slot_of_line());
      return true;
    default:
      return false;
  }
}

// --- numbers and strings ---

bool PickleMachine::step_number(unsigned char opcode) {
  switch (opcode) {
    case 'N':
      push_constant(none, 0);
      return true;
    case 0x88:
      push_constant(boolean, 1);
      return true;
    case 'I':
      push_int_line();
      return true;
    case 'J':
      push_integer(pickle_integer(take(4)));
      return true;
    case 'L':
      push_long_line();
      return true;
    case 0x8a:
      push_long(unsigned_of(1));
      return true;
    case 0x8b:
      push_long(size_of_int32());
      return true;
    case 'F': {
      const std::string_view written = line();
      const auto value = pickle_float(written);
      if (!value) corrupt("invalid number", "a float", base::quote(written));
      push_number(*value);
      return true;
    }
    case 'G': {  // big-endian
      std::uint64_t bits = 0;
      for (const char byte : take(8)) bits = bits << 8U | static_cast<unsigned char>(byte);
      push_number(std::bit_cast<double>(bits));
      return true;
    }
    default:
      return false;
  }
}

void PickleMachine::push_int_line() {
  const std::string_view written = line();
  if (written == "00") return push_constant(boolean, 0);
  if (written == "01") return push_constant(boolean, 1);
  push_decimal(written, written, "decimal digits");
}

void PickleMachine::push_long_line() {
  const std::string_view written = line();
  std::string_view digits = written;
  if (digits.ends_with('L')) digits.remove_suffix(1);
  push_decimal(digits, written, "decimal digits and an L");
}

/// Pushes the integer given as decimal digits with an optional sign. `written` is the whole line,
/// which the message about an invalid integer quotes.
void PickleMachine::push_decimal(std::string_view digits, std::string_view written,
                                 std::string_view expected) {
  if (digits.size() > 2 * limits_.max_integer_bytes) {
    unsupported("an integer is too long",
                fmt::format("at most {} digits", 2 * limits_.max_integer_bytes),
                fmt::format("{}", digits.size()));
  }
  auto value = pickle_decimal(digits);
  if (!value) corrupt("invalid integer", expected, base::quote(written));
  push_integer(std::move(*value));
}

void PickleMachine::push_long(std::uint64_t size) {
  if (size > limits_.max_integer_bytes) {
    unsupported("an integer is too long",
                fmt::format("at most {} bytes", limits_.max_integer_bytes),
                fmt::format("{}", size));
  }
  push_integer(pickle_integer(take(size)));
}

bool PickleMachine::step_text(unsigned char opcode) {
  switch (opcode) {
    case 'S': {
      const std::string_view written = line();
      push_decoded(old_string, pickle_quoted(written), written);
      return true;
    }
    case 'T':
      push_text(old_string, take(size_of_int32()));
      return true;
    case 'U':
      push_text(old_string, take(unsigned_of(1)));
      return true;
    case 'V': {
      const std::string_view written = line();
      push_decoded(text, pickle_raw_unicode(written), written);
      return true;
    }
    case 0x8c:
      push_text(text, take(unsigned_of(1)));
      return true;
    case 0x8d:
      push_text(text, take(unsigned_of(8)));
      return true;
    case 'B':
      push_text(PickleKind::bytes, take(unsigned_of(4)));
      return true;
    case 'C':
      push_text(PickleKind::bytes, take(unsigned_of(1)));
      return true;
    case 0x8e:
      push_text(PickleKind::bytes, take(unsigned_of(8)));
      return true;
    case 0x96:
      push_text(bytearray, take(unsigned_of(8)));
      return true;
    case 0x97:
    case 0x98:
      unsupported("an out-of-band buffer", "all bytes inside the pickle", "a buffer outside");
    default:
      return false;
  }
}

// --- containers, globals and calls ---

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
    push_change({PickleChange::Kind::append, target, 0, value});
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
    push_change({PickleChange::Kind::add, target, 0, value});
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
    push_change({PickleChange::Kind::set_item, target, pairs[i], pairs[i + 1]});
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

/// Pushes a node of `kind`: reduce, newobj or instance. `items`: a callable (a class for newobj and
/// instance), a tuple of arguments and, optionally, a dict of keyword arguments.
void PickleMachine::push_object(PickleKind kind, std::span<const std::uint32_t> items) {
  if (graph_.nodes.kind(items[1]) != tuple) wrong("arguments of a call", "a tuple", items[1]);
  if (items.size() > 2 && graph_.nodes.kind(items[2]) != dict) {
    wrong("named arguments of a call", "a dict", items[2]);
  }
  const PickleKind callable = graph_.nodes.kind(items[0]);
  // In files of old torch versions, a persistent ID may stand for the class of an nn.Module, and
  // the pickle calls this class.
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
    unsupported("a state is set on a value that cannot have one", "an object",
                describe(graph_.nodes.kind(target)));
  }
  push_change({PickleChange::Kind::state, target, 0, state});
}

// --- the functions of pickle.hpp ---

PickleGraph read_pickle(std::string_view bytes, const base::Where& where,
                        const PickleLimits& limits) {
  PickleMachine machine(bytes, where, limits);
  machine.reserve_nodes();
  return machine.run();
}

PickleGraph read_pickle_prefix(std::string_view bytes, const base::Where& where,
                               std::string& problem, const PickleLimits& limits) {
  PickleMachine machine(bytes, where, limits);
  try {
    return machine.run();
  } catch (const Error& error) {
    problem = error.what();
    return machine.take_prefix();
  }
}

}  // namespace tenfold::codecs

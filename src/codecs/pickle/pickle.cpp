#include "codecs/pickle/pickle.hpp"

#include <fmt/format.h>

#include "base/fail.hpp"
#include "codecs/pickle/machine.hpp"

namespace tenfold::codecs {

using enum PickleKind;

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

/// Executes the opcodes that make up nearly all of a checkpoint.
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

PickleGraph read_pickle(std::string_view bytes, const base::Where& where,
                        const PickleLimits& limits) {
  return PickleMachine(bytes, where, limits).run();
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

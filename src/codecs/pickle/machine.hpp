#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "codecs/pickle/pickle.hpp"
#include "codecs/pickle/state.hpp"

namespace tenfold::codecs {

/// The pickle machine, as Python's pickletools documents it, but each opcode only creates nodes. It
/// accepts what Python's unpickler accepts, except for some input that no pickler writes: several
/// values at STOP, items set in a list, items appended to a bytearray. pickle.cpp has the stack and
/// the memo, scalar.cpp numbers and strings, object.cpp containers, globals and calls.
class PickleMachine : private PickleState {
 public:
  using PickleState::PickleState;

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

}  // namespace tenfold::codecs

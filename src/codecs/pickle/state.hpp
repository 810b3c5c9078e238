#pragma once

#include <tenfold/error.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "codecs/pickle/pickle.hpp"
#include "codecs/pickle/text.hpp"

namespace tenfold::codecs {

/// Throws Error(unsupported) if a path from the root has more than max_depth nodes. In a graph with
/// cycles, may not detect all such paths.
void require_pickle_depth(const PickleGraph& graph, const base::Where& where,
                          const PickleLimits& limits);

/// The state of PickleMachine: the input bytes, the stack with its marks, the memo, and the nodes
/// created so far.
class PickleState {
 public:
  PickleState(std::string_view bytes, const base::Where& where, const PickleLimits& limits)
      : bytes_(bytes), where_(where), limits_(limits) {
    small_integers_.fill(kNone);
  }

 protected:
  /// Reserves space for the nodes of a pickle that fills all input bytes. torch.save writes about
  /// one node per 6 to 13 bytes.
  void reserve_nodes() {
    graph_.nodes.reserve(std::min({bytes_.size() / 12 + 16, limits_.max_nodes, kMaxReserved}));
  }

  // Errors.
  [[noreturn]] void fail(ErrorCode code, std::string_view what, std::string_view expected,
                         std::string_view found) const {
    throw base::fail(code, where_)
        .problem(what)
        .expected(expected)
        .found(found, " at byte ", opcode_at_);
  }
  [[noreturn]] void corrupt(std::string_view what, std::string_view expected,
                            std::string_view found) const {
    fail(ErrorCode::corrupt, what, expected, found);
  }
  [[noreturn]] void unsupported(std::string_view what, std::string_view expected,
                                std::string_view found) const {
    fail(ErrorCode::unsupported, what, expected, found);
  }

  [[noreturn]] void fail_truncated(std::uint64_t size) const {
    corrupt("it is truncated", fmt::format("{} bytes more", size),
            fmt::format("{}", bytes_.size() - at_));
  }

  // Input bytes.
  std::string_view take(std::uint64_t size) {
    if (size > bytes_.size() - at_) [[unlikely]] {
      fail_truncated(size);
    }
    const std::string_view text(bytes_.data() + at_, static_cast<std::size_t>(size));
    at_ += text.size();
    return text;
  }
  std::uint64_t unsigned_of(std::size_t size) {
    const std::string_view text = take(size);
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < size; ++i) {
      value |= std::uint64_t{static_cast<unsigned char>(text[i])} << (8 * i);
    }
    return value;
  }
  /// Reads a size or extension code of 4 bytes. Python reads it as a signed integer, so a negative
  /// value is refused.
  std::uint64_t size_of_int32() {
    const std::uint64_t size = unsigned_of(4);
    if (size > 0x7fffffff) corrupt("a size or extension code is negative", "at least 0", "less");
    return size;
  }
  std::string_view line() {
    const std::size_t end = bytes_.find('\n', at_);
    if (end == std::string_view::npos) corrupt("a line has no end", "a newline", "none");
    const std::string_view text = bytes_.substr(at_, end - at_);
    at_ = end + 1;
    return text;
  }

  // Nodes.
  /// Pushes the ID of the next node. The caller must then add this node to the graph.
  void push_next() {
    if (graph_.nodes.size() >= limits_.max_nodes) {
      unsupported("too many values", fmt::format("at most {}", limits_.max_nodes), "more");
    }
    stack_.push_back(static_cast<std::uint32_t>(graph_.nodes.size()));
  }
  void push_empty(PickleKind kind) { push_items(kind, {}); }
  void push_items(PickleKind kind, std::span<const std::uint32_t> items) {
    push_next();
    graph_.nodes.add_items(kind, opcode_at_, items);
  }
  void push_new_integer(PickleKind kind, std::int64_t value) {
    push_next();
    graph_.nodes.add_integer(kind, opcode_at_, value);
  }
  void push_number(double value) {
    push_next();
    graph_.nodes.add_number(opcode_at_, value);
  }
  void push_text(PickleKind kind, std::string_view value) {
    if (kind == PickleKind::text && !is_pickle_text(value)) {
      corrupt("text is not UTF-8", "UTF-8", base::quote(value));
    }
    push_next();
    graph_.nodes.add_text(kind, opcode_at_, value);
  }
  void push_owned(PickleKind kind, std::string value) {
    push_next();
    graph_.nodes.add_text(kind, opcode_at_, graph_.owned.emplace_back(std::move(value)));
  }
  void push_decoded(PickleKind kind, std::optional<std::string> value, std::string_view written) {
    if (!value) corrupt("invalid string literal", "Python's syntax", base::quote(written));
    push_owned(kind, std::move(*value));
  }
  void push_integer(std::int64_t value) {
    if (value < 0 || value >= static_cast<std::int64_t>(small_integers_.size())) {
      push_new_integer(PickleKind::integer, value);
      return;
    }
    push_known(small_integers_[static_cast<std::size_t>(value)], PickleKind::integer, value);
  }
  void push_integer(PickleInteger value) {
    if (value.value) return push_integer(*value.value);
    push_owned(PickleKind::big_integer, std::move(value.digits));
  }
  void push_constant(PickleKind kind, std::int64_t value) {
    push_known(constants_[kind == PickleKind::none ? 2 : static_cast<std::size_t>(value)], kind,
               value);
  }
  void push_known(std::uint32_t& known, PickleKind kind, std::int64_t value) {
    if (known != kNone) return push(known);
    push_new_integer(kind, value);
    known = stack_.back();
  }

  // Stack. Opcodes cannot access values below the topmost mark.
  std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  void push(std::uint32_t id) { stack_.push_back(id); }
  void require(std::size_t count) const {
    if (stack_.size() - floor() < count) {
      corrupt("the stack is too short", fmt::format("{} values", count),
              fmt::format("{}", stack_.size() - floor()));
    }
  }
  std::uint32_t top() const {
    require(1);
    return stack_.back();
  }
  std::uint32_t pop() {
    const std::uint32_t id = top();
    stack_.pop_back();
    return id;
  }
  /// Pops `count` values, and returns them in the order in which they were pushed. The result is
  /// valid until the next push.
  std::span<const std::uint32_t> pop(std::size_t count) {
    require(count);
    const std::size_t left = stack_.size() - count;
    stack_.resize(left);
    return {stack_.data() + left, count};
  }
  std::span<const std::uint32_t> pop_to_mark() {
    if (marks_.empty()) corrupt("no mark", "a MARK before", "none");
    const auto ids = pop(stack_.size() - marks_.back());
    marks_.pop_back();
    return ids;
  }
  void push_mark() {
    if (marks_.size() >= limits_.max_depth) {
      unsupported("nesting is too deep", fmt::format("at most {} levels", limits_.max_depth),
                  "more");
    }
    marks_.push_back(stack_.size());
  }
  /// Pushes a container whose items do not change.
  void push_fixed(PickleKind kind, std::span<const std::uint32_t> items) {
    push_items(kind, graph_.ids.fixed(items));
  }
  /// Pushes a container to which more items may be appended.
  void push_growing(PickleKind kind, std::span<const std::uint32_t> items) {
    push_items(kind, graph_.ids.appended({}, items));
  }

  // Memo. memo_ holds the slots 0, 1, 2, ..., which nearly every pickler uses; sparse_memo_ holds
  // the slots after a gap.
  std::size_t memo_size() const { return memo_.size() + sparse_memo_.size(); }
  void put(std::uint64_t slot) {
    if (memo_size() >= limits_.max_nodes) {
      unsupported("the memo is too large", fmt::format("at most {}", limits_.max_nodes), "more");
    }
    if (slot < memo_.size()) {
      memo_[static_cast<std::size_t>(slot)] = top();
    } else if (slot == memo_.size()) {
      memo_.push_back(top());
      sparse_memo_.erase(slot);
    } else {
      sparse_memo_.insert_or_assign(slot, top());
    }
  }
  void get(std::uint64_t slot) {
    if (slot < memo_.size()) return push(memo_[static_cast<std::size_t>(slot)]);
    const auto found = sparse_memo_.find(slot);
    if (found == sparse_memo_.end()) {
      corrupt("the memo has no such slot", "a slot that was stored before",
              fmt::format("{}", slot));
    }
    push(found->second);
  }
  std::uint64_t slot_of_line() {
    const std::string_view written = line();
    const auto slot = pickle_decimal(written);
    if (!slot || !slot->value || *slot->value < 0) {
      corrupt("invalid memo slot", "a number from 0", base::quote(written));
    }
    return static_cast<std::uint64_t>(*slot->value);
  }
  bool is_object(std::uint32_t id) const {
    const PickleKind kind = graph_.nodes.kind(id);
    return kind == PickleKind::reduce || kind == PickleKind::newobj || kind == PickleKind::instance;
  }
  void push_change(const PickleChange& change) {
    if (graph_.changes.size() >= limits_.max_nodes) {
      unsupported("too many changes of objects", fmt::format("at most {}", limits_.max_nodes),
                  "more");
    }
    graph_.changes.push_back(change);
  }
  [[noreturn]] void wrong(std::string_view what, std::string_view expected,
                          std::uint32_t found) const {
    corrupt(what, expected, describe(graph_.nodes.kind(found)));
  }

  std::string_view bytes_;
  const base::Where& where_;
  const PickleLimits& limits_;
  std::size_t at_ = 0;
  std::size_t opcode_at_ = 0;
  PickleGraph graph_;
  std::vector<std::uint32_t> stack_;
  std::vector<std::size_t> marks_;
  std::vector<std::uint32_t> memo_;
  /// A tree, because the file chooses the slots: in a hash table, they could all collide.
  std::map<std::uint64_t, std::uint32_t> sparse_memo_;

  static constexpr std::size_t kMaxReserved = std::size_t{1} << 20U;
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;
  std::array<std::uint32_t, 3> constants_ = {kNone, kNone, kNone};  ///< False, True, None
  std::array<std::uint32_t, 256> small_integers_;
};

}  // namespace tenfold::codecs

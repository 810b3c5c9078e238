#include "codecs/pickle/imports.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/text.hpp"

namespace tenfold::codecs {
namespace {

/// The argument that follows an opcode.
enum class Argument : std::uint8_t {
  nothing,
  byte,
  two_bytes,
  four_bytes,
  eight_bytes,
  sized_by_1,  ///< a size in 1 byte, followed by that many bytes
  sized_by_4,
  sized_by_8,
  line,
  two_lines,
};

struct Opcode {
  unsigned char code = 0;
  Argument argument = Argument::nothing;
  bool to_mark = false;   ///< pops all values down to the innermost mark, and the mark
  std::uint8_t pops = 0;  ///< number of values popped; with to_mark, only those below the mark
  std::uint8_t pushes = 0;
};

/// All opcodes except STOP, MARK and POP, which step() handles, and NEXT_BUFFER, which fails unless
/// the caller passes out-of-band buffers.
constexpr auto kOpcodes = [] {
  using enum Argument;
  return std::to_array<Opcode>({
      {'1', nothing, true, 0, 0},        // POP_MARK
      {'2', nothing, false, 1, 2},       // DUP
      {'F', line, false, 0, 1},          // FLOAT
      {'I', line, false, 0, 1},          // INT
      {'J', four_bytes, false, 0, 1},    // BININT
      {'K', byte, false, 0, 1},          // BININT1
      {'L', line, false, 0, 1},          // LONG
      {'M', two_bytes, false, 0, 1},     // BININT2
      {'N', nothing, false, 0, 1},       // NONE
      {'P', line, false, 0, 1},          // PERSID
      {'Q', nothing, false, 1, 1},       // BINPERSID
      {'R', nothing, false, 2, 1},       // REDUCE
      {'S', line, false, 0, 1},          // STRING
      {'T', sized_by_4, false, 0, 1},    // BINSTRING
      {'U', sized_by_1, false, 0, 1},    // SHORT_BINSTRING
      {'V', line, false, 0, 1},          // UNICODE
      {'X', sized_by_4, false, 0, 1},    // BINUNICODE
      {'a', nothing, false, 2, 1},       // APPEND
      {'b', nothing, false, 2, 1},       // BUILD
      {'c', two_lines, false, 0, 1},     // GLOBAL
      {'d', nothing, true, 0, 1},        // DICT
      {'}', nothing, false, 0, 1},       // EMPTY_DICT
      {'e', nothing, true, 1, 1},        // APPENDS
      {'g', line, false, 0, 1},          // GET
      {'h', byte, false, 0, 1},          // BINGET
      {'i', two_lines, true, 0, 1},      // INST
      {'j', four_bytes, false, 0, 1},    // LONG_BINGET
      {'l', nothing, true, 0, 1},        // LIST
      {']', nothing, false, 0, 1},       // EMPTY_LIST
      {'o', nothing, true, 0, 1},        // OBJ
      {'p', line, false, 1, 1},          // PUT
      {'q', byte, false, 1, 1},          // BINPUT
      {'r', four_bytes, false, 1, 1},    // LONG_BINPUT
      {'s', nothing, false, 3, 1},       // SETITEM
      {'t', nothing, true, 0, 1},        // TUPLE
      {')', nothing, false, 0, 1},       // EMPTY_TUPLE
      {'u', nothing, true, 1, 1},        // SETITEMS
      {'G', eight_bytes, false, 0, 1},   // BINFLOAT
      {'B', sized_by_4, false, 0, 1},    // BINBYTES
      {'C', sized_by_1, false, 0, 1},    // SHORT_BINBYTES
      {0x80, byte, false, 0, 0},         // PROTO
      {0x81, nothing, false, 2, 1},      // NEWOBJ
      {0x82, byte, false, 0, 1},         // EXT1
      {0x83, two_bytes, false, 0, 1},    // EXT2
      {0x84, four_bytes, false, 0, 1},   // EXT4
      {0x85, nothing, false, 1, 1},      // TUPLE1
      {0x86, nothing, false, 2, 1},      // TUPLE2
      {0x87, nothing, false, 3, 1},      // TUPLE3
      {0x88, nothing, false, 0, 1},      // NEWTRUE
      {0x89, nothing, false, 0, 1},      // NEWFALSE
      {0x8a, sized_by_1, false, 0, 1},   // LONG1
      {0x8b, sized_by_4, false, 0, 1},   // LONG4
      {0x8c, sized_by_1, false, 0, 1},   // SHORT_BINUNICODE
      {0x8d, sized_by_8, false, 0, 1},   // BINUNICODE8
      {0x8e, sized_by_8, false, 0, 1},   // BINBYTES8
      {0x8f, nothing, false, 0, 1},      // EMPTY_SET
      {0x90, nothing, true, 1, 1},       // ADDITEMS
      {0x91, nothing, true, 0, 1},       // FROZENSET
      {0x92, nothing, false, 3, 1},      // NEWOBJ_EX
      {0x93, nothing, false, 2, 1},      // STACK_GLOBAL
      {0x94, nothing, false, 1, 1},      // MEMOIZE
      {0x95, eight_bytes, false, 0, 0},  // FRAME
      {0x96, sized_by_8, false, 0, 1},   // BYTEARRAY8
      {0x98, nothing, false, 1, 1},      // READONLY_BUFFER
  });
}();

/// Maps an opcode to its index in kOpcodes, or to the length of kOpcodes if it is not listed there.
constexpr auto kOpcodeIndex = [] {
  std::array<std::uint8_t, 256> index{};
  index.fill(static_cast<std::uint8_t>(kOpcodes.size()));
  for (std::size_t i = 0; i < kOpcodes.size(); ++i) {
    index[kOpcodes[i].code] = static_cast<std::uint8_t>(i);
  }
  return index;
}();

/// Returns false for a name that no module has in practice. This rejects most prose that starts
/// with a `c` (the opcode GLOBAL): its first line contains blanks or commas.
bool is_module(std::string_view name) {
  return !name.empty() && base::is_utf8(name) && std::ranges::all_of(name, [](char c) {
    return base::is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           c == '-' || c == '.' || static_cast<unsigned char>(c) >= 0x80;
  });
}

class ImportWalk {
 public:
  explicit ImportWalk(std::string_view rest) : rest_(rest) {}

  bool run() {
    while (!rest_.empty()) {
      const auto code = static_cast<unsigned char>(take(1)->front());
      if (code == 0x93 && has(2)) return true;
      if (code == 'c' || (code == 'i' && num_marks_ > 0)) {
        return is_module(take_line()) && !take_line().empty();
      }
      if (!step(code)) return false;
    }
    return false;
  }

 private:
  /// Advances past one opcode. Returns false where Python's unpickler fails for lack of bytes,
  /// values or marks, at NEXT_BUFFER, and at unknown opcodes.
  bool step(unsigned char code) {
    switch (code) {
      case '.':  // the next pickle starts with an empty stack
        if (!has(1)) return false;
        is_mark_.clear();
        num_marks_ = 0;
        return true;
      case '(':
        is_mark_.push_back(true);
        ++num_marks_;
        return true;
      case '0':  // also pops a mark on top of the stack
        return pop(1) || pop_to_mark();
      default:
        return step_listed(kOpcodeIndex[code]);
    }
  }

  bool step_listed(std::uint8_t index) {
    if (index == kOpcodes.size()) return false;
    const Opcode& opcode = kOpcodes[index];
    if (!skip(opcode.argument)) return false;
    if (opcode.to_mark && !pop_to_mark()) return false;
    if (!pop(opcode.pops)) return false;
    for (std::uint8_t i = 0; i < opcode.pushes; ++i) is_mark_.push_back(false);
    return true;
  }

  /// True if there are at least `count` values above the topmost mark.
  bool has(std::size_t count) const {
    if (is_mark_.size() < count) return false;
    for (std::size_t i = 1; i <= count; ++i) {
      if (is_mark_[is_mark_.size() - i]) return false;
    }
    return true;
  }

  bool pop(std::size_t count) {
    if (!has(count)) return false;
    for (std::size_t i = 0; i < count; ++i) is_mark_.pop_back();
    return true;
  }

  bool pop_to_mark() {
    if (num_marks_ == 0) return false;
    while (!is_mark_.back()) is_mark_.pop_back();
    is_mark_.pop_back();
    --num_marks_;
    return true;
  }

  std::optional<std::string_view> take(std::uint64_t size) {
    if (size > rest_.size()) return std::nullopt;
    const std::string_view taken = rest_.substr(0, static_cast<std::size_t>(size));
    rest_.remove_prefix(taken.size());
    return taken;
  }

  /// Takes an argument up to the next newline, or to the end of the bytes.
  std::string_view take_line() {
    const std::string_view text = rest_.substr(0, rest_.find('\n'));
    rest_.remove_prefix(std::min(text.size() + 1, rest_.size()));
    return text;
  }

  bool skip(Argument argument) {
    switch (argument) {
      using enum Argument;
      case nothing:
        return true;
      case byte:
        return take(1).has_value();
      case two_bytes:
        return take(2).has_value();
      case four_bytes:
        return take(4).has_value();
      case eight_bytes:
        return take(8).has_value();
      case sized_by_1:
        return skip_sized(1);
      case sized_by_4:
        return skip_sized(4);
      case sized_by_8:
        return skip_sized(8);
      case line:
        take_line();
        return true;
      case two_lines:
        take_line();
        take_line();
        return true;
    }
    return false;
  }

  bool skip_sized(std::size_t width) {
    const auto written = take(width);
    if (!written) return false;
    std::uint64_t size = 0;
    for (std::size_t i = width; i > 0; --i) {
      size = size << 8U | static_cast<unsigned char>((*written)[i - 1]);
    }
    return take(size).has_value();
  }

  std::string_view rest_;
  /// The stack: true for a mark, false for a value. It takes one bit per element, because data that
  /// is not a pickle may look like billions of marks.
  std::vector<bool> is_mark_;
  std::size_t num_marks_ = 0;
};

}  // namespace

bool may_import(std::string_view bytes) { return ImportWalk(bytes).run(); }

}  // namespace tenfold::codecs

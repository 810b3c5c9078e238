#include <bit>
#include <utility>

#include <fmt/format.h>

#include "base/text.hpp"
#include "codecs/pickle/machine.hpp"
#include "codecs/pickle/text.hpp"

// The opcodes for numbers and strings.

namespace tenfold::codecs {

using enum PickleKind;

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
  auto value = pickle_decimal(written.substr(0, 4 * limits_.max_integer_bytes));
  if (!value || written.size() > 4 * limits_.max_integer_bytes) {
    corrupt("invalid integer", "decimal digits", base::quote(written));
  }
  push_integer(std::move(*value));
}

void PickleMachine::push_long_line() {
  const std::string_view written = line();
  std::string_view digits = written;
  if (digits.ends_with('L')) digits.remove_suffix(1);
  if (digits.size() > 2 * limits_.max_integer_bytes) {
    unsupported("an integer is too long",
                fmt::format("at most {} digits", 2 * limits_.max_integer_bytes),
                fmt::format("{}", digits.size()));
  }
  auto value = pickle_decimal(digits);
  if (!value) corrupt("invalid integer", "decimal digits and an L", base::quote(written));
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

}  // namespace tenfold::codecs

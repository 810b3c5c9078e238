#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

/// Functions that return the opcodes of one value in a pickle, for tests that need values which no
/// writer of this project writes. Calls can be nested: `pickled::whole(pickled::list({...}))`.
namespace tenfold::test::pickled {

using Values = std::vector<std::string>;

inline std::string little(std::uint64_t value, std::size_t size) {
  std::string bytes;
  for (std::size_t i = 0; i < size; ++i) bytes += static_cast<char>(value >> (8 * i));
  return bytes;
}

inline std::string joined(const Values& values) {
  std::string all;
  for (const std::string& value : values) all += value;
  return all;
}

inline std::string none() { return "N"; }
inline std::string boolean(bool value) { return value ? "\x88" : "\x89"; }
/// An integer of any size, as decimal digits.
inline std::string integer(std::string_view digits) { return "L" + std::string(digits) + "L\n"; }
inline std::string integer(std::int64_t value) { return integer(std::to_string(value)); }
inline std::string number(std::string_view digits) { return "F" + std::string(digits) + "\n"; }
inline std::string text(std::string_view value) {
  return "X" + little(value.size(), 4) + std::string(value);
}
/// A `str` of Python 2.
inline std::string old_string(std::string_view value) {
  return "T" + little(value.size(), 4) + std::string(value);
}
inline std::string bytes(std::string_view value) {
  return "B" + little(value.size(), 4) + std::string(value);
}
inline std::string bytearray(std::string_view value) {
  return "\x96" + little(value.size(), 8) + std::string(value);
}

inline std::string list(const Values& items) { return "](" + joined(items) + "e"; }
inline std::string tuple(const Values& items) { return "(" + joined(items) + "t"; }
inline std::string set(const Values& items) { return "\x8f(" + joined(items) + "\x90"; }
inline std::string frozenset(const Values& items) { return "(" + joined(items) + "\x91"; }
/// A dict of alternating keys and values.
inline std::string dict(const Values& pairs) { return "}(" + joined(pairs) + "u"; }

inline std::string global(std::string_view module, std::string_view name) {
  return "c" + std::string(module) + "\n" + std::string(name) + "\n";
}
/// A call of a global.
inline std::string call(std::string_view module, std::string_view name, const Values& arguments) {
  return global(module, name) + tuple(arguments) + "R";
}
/// An object, created by `__new__` of its class without arguments.
inline std::string object(std::string_view module, std::string_view name) {
  return global(module, name) + ")\x81";
}
inline std::string with_state(const std::string& object, const std::string& state) {
  return object + state + "b";
}
inline std::string persistent(const std::string& id) { return id + "Q"; }

/// A complete pickle of protocol 2, whose root has the opcodes `value`. Readers also accept opcodes
/// of later protocols in it.
inline std::string whole(const std::string& value) { return "\x80\x02" + value + "."; }

}  // namespace tenfold::test::pickled

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

namespace tenfold::codecs {

/// Writes a pickle of protocol 2, using only opcodes that torch.load(weights_only=True) accepts.
/// The functions write opcodes that push values onto the unpickler's stack, change values on it, or
/// use its memo. To write a container, call its begin function, write its items, and call its end
/// function. The caller must make sure that exactly one value is on the stack when it calls take().
class PickleWriter {
 public:
  PickleWriter();

  void none() { put('N'); }
  void boolean(bool value) { put(value ? '\x88' : '\x89'); }
  void integer(std::int64_t value);
  /// Writes an integer, given as decimal digits with an optional '-'. If it takes more than 255
  /// bytes, writes nothing and returns false: torch.load(weights_only=True) accepts no opcode for
  /// larger integers.
  bool big_integer(std::string_view digits);
  void number(double value);
  /// Writes a string in WTF-8, of less than 4 GiB. Lone surrogates are written as Python writes
  /// them.
  void text(std::string_view value);
  /// Writes a string that may occur often: the first time in full, later as a reference to the
  /// memo.
  void known_text(std::string_view value);

  void begin_list() { put("](", 2); }
  void end_list() { put('e'); }
  void begin_tuple() { put('('); }
  void end_tuple() { put('t'); }
  /// Begins a dict. The caller writes keys and values alternately.
  void begin_dict() { put("}(", 2); }
  void end_dict() { put('u'); }
  void begin_ordered_dict();
  void end_ordered_dict() { put('u'); }

  /// Writes a class or function by name: the first time in full, later as a reference to the memo.
  void global(std::string_view module, std::string_view name);
  /// Writes a call: the topmost value is the tuple of arguments, the value below it the callable.
  void call() { put('R'); }
  /// Replaces the topmost value, a class, by a new object of this class, created without arguments.
  void new_object() { put(")\x81", 2); }
  /// Sets the topmost value, such as a dict of attributes, as the state of the object below it
  /// (BUILD).
  void set_attributes() { put('b'); }
  /// Replaces the topmost value, a persistent ID, by the external object that the ID names.
  void persistent() { put('Q'); }

  /// Stores the topmost value in the memo and returns its slot. push() pushes that value again.
  std::uint32_t remember();
  void push(std::uint32_t remembered);

  std::size_t size_bytes() const noexcept { return bytes_.size(); }
  /// Returns the pickle. The writer cannot be used afterwards.
  std::string take();

 private:
  void put(char opcode) { bytes_ += opcode; }
  void put(const char* bytes, std::size_t size) { bytes_.append(bytes, size); }
  void put_little(std::uint64_t value, std::size_t size);

  std::string bytes_;
  std::uint32_t remembered_ = 0;
  std::unordered_map<std::string, std::uint32_t> known_;  ///< memo slots of globals and strings
};

}  // namespace tenfold::codecs

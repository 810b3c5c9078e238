#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

namespace tenfold::codecs {

/// Writes a pickle of protocol 2, and of its opcodes only those that torch.load(weights_only=True)
/// knows. Values are pushed on the machine's stack, containers begin before their items and end
/// after them; that the calls make one value is the caller's business.
class PickleWriter {
 public:
  PickleWriter();

  void none() { put('N'); }
  void boolean(bool value) { put(value ? '\x88' : '\x89'); }
  void integer(std::int64_t value);
  /// Decimal digits with an optional '-'. False, with nothing written, beyond 255 bytes: torch
  /// knows no opcode for more.
  bool big_integer(std::string_view digits);
  void number(double value);
  /// WTF-8 of less than 4 GiB: lone surrogates are written as Python writes them.
  void text(std::string_view value);
  /// Text that comes often: written once.
  void known_text(std::string_view value);

  void begin_list() { put("](", 2); }
  void end_list() { put('e'); }
  void begin_tuple() { put('('); }
  void end_tuple() { put('t'); }
  /// Then keys and values in turn.
  void begin_dict() { put("}(", 2); }
  void end_dict() { put('u'); }
  void begin_ordered_dict();
  void end_ordered_dict() { put('u'); }

  /// A class or function by name. Written once.
  void global(std::string_view module, std::string_view name);
  /// Calls what is under the topmost tuple with it.
  void call() { put('R'); }
  /// Makes an object of the topmost class, without arguments.
  void new_object() { put(")\x81", 2); }
  /// Gives the object under the topmost dict its attributes.
  void set_attributes() { put('b'); }
  /// Makes the topmost value the id of something outside the pickle.
  void persistent() { put('Q'); }

  /// Names the topmost value; push() puts it on the stack again, the same object.
  std::uint32_t remember();
  void push(std::uint32_t remembered);

  std::size_t size_bytes() const noexcept { return bytes_.size(); }
  /// The pickle; the writer is then spent.
  std::string take();

 private:
  void put(char opcode) { bytes_ += opcode; }
  void put(const char* bytes, std::size_t size) { bytes_.append(bytes, size); }
  void put_little(std::uint64_t value, std::size_t size);

  std::string bytes_;
  std::uint32_t remembered_ = 0;
  std::unordered_map<std::string, std::uint32_t> known_;  ///< globals and texts
};

}  // namespace tenfold::codecs

#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/fail.hpp"

namespace tenfold::codecs {

/// Maximum nesting depth of a document that parse_json() accepts and JsonWriter writes.
inline constexpr std::size_t kMaxJsonDepth = 512;

/// Receives the keys and values of a document, and the begin and end of each container, in document
/// order. Strings are passed with their escapes decoded, as WTF-8 (UTF-8 that may contain lone
/// surrogates), and are valid until the function that receives them returns. Each function may
/// throw, which ends the parse.
class JsonHandler {
 public:
  virtual ~JsonHandler() = default;
  virtual void null() = 0;
  virtual void boolean(bool value) = 0;
  virtual void integer(std::int64_t value) = 0;
  /// An integer outside the range of int64, as the characters of the input.
  virtual void big_integer(std::string_view digits) = 0;
  /// A number with a fraction or an exponent, or NaN, Infinity or -Infinity. 1e999 is infinity, as
  /// in Python.
  virtual void number(double value) = 0;
  virtual void string(std::string_view value) = 0;
  virtual void begin_object() = 0;
  virtual void key(std::string_view value) = 0;
  virtual void end_object() = 0;
  virtual void begin_array() = 0;
  virtual void end_array() = 0;
};

/// Parses exactly one document, in UTF-8 with or without BOM; whitespace may surround it. Throws
/// Error(corrupt) "<where>: <what>: expected ..., found ... at byte N". The handler receives every
/// member of an object, also members with duplicate keys. Escapes of lone surrogates are decoded to
/// three bytes each (WTF-8).
void parse_json(std::string_view text, const base::Where& where, JsonHandler& handler);

/// Layout of the output.
enum class JsonStyle : std::uint8_t {
  python,          ///< json.dumps(x): ", " and ": ", ASCII escapes
  python_compact,  ///< json.dumps(x, separators=(",", ":")): ASCII escapes
  utf8_compact,    ///< json.dumps(x, separators=(",", ":"), ensure_ascii=False), but with escapes
                   ///< for lone surrogates
};

/// Writes a document piece by piece; the caller must balance begin/end and key/value calls. Doubles
/// are written as by json.dumps (shortest digits that round-trip; NaN, Infinity, -Infinity).
///
/// string() and key() throw Error(invalid_argument) for bytes that are not WTF-8. big_integer()
/// throws it for characters that are not an integer of JSON. begin_object() and begin_array() throw
/// Error(unsupported) if the nesting exceeds kMaxJsonDepth, because parse_json() would refuse the
/// document.
class JsonWriter {
 public:
  explicit JsonWriter(JsonStyle style) : style_(style) {}
  void null();
  void boolean(bool value);
  void integer(std::int64_t value);
  void big_integer(std::string_view digits);
  void number(double value);
  void string(std::string_view value);
  void begin_object();
  void key(std::string_view value);
  void end_object();
  void begin_array();
  void end_array();
  /// Writes a bool, an integer or a string; for an optional, its value or null; for a range, an
  /// array.
  template <class T>
  void value(const T& item) {
    if constexpr (std::same_as<T, bool>) {
      boolean(item);
    } else if constexpr (std::signed_integral<T>) {
      integer(item);
    } else if constexpr (std::integral<T>) {
      big_integer(std::to_string(item));
    } else if constexpr (std::convertible_to<const T&, std::string_view>) {
      string(item);
    } else if constexpr (requires { item.has_value(); }) {
      item ? value(*item) : null();
    } else {
      begin_array();
      for (const auto& one : item) value(one);
      end_array();
    }
  }
  /// Calls key() and then value().
  template <class T>
  void member(std::string_view key, const T& item) {
    this->key(key);
    value(item);
  }
  std::string take() { return std::move(text_); }

 private:
  void separate();
  void enter(char bracket);
  void leave(char bracket);
  JsonStyle style_;
  std::string text_;
  std::size_t depth_ = 0;
  bool need_comma_ = false;
  bool after_key_ = false;
};

}  // namespace tenfold::codecs

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tenfold/tensordict.hpp>
#include <tenfold/value.hpp>

namespace tenfold {

// Typed keys: keys of a Python dict that are not strings. A tree identifies each of them by its
// key_text(). The original keys are stored in TypedKeys; if all keys of a dict are ints, the flag
// `int_keys` replaces the TypedKeys.

/// True for None, bool, int, float, and (nested) tuples of these and of strings.
bool is_typed_key(const Value& key) noexcept;

/// True for NaN and tuples that contain NaN. In a Python dict, two such keys are the same key only
/// if they contain the same NaN object.
bool has_nan(const Value& key) noexcept;

/// Like Python's str(): "None", "True", "1", "0.5", "(1, 'a')". But strings in a tuple are always
/// in single quotes, and only single quotes and backslashes in them are escaped.
std::string key_text(const Value& key);

/// True if `text` is an integer in the form of Python's str(int).
bool is_int_key(std::string_view text) noexcept;

/// Parses a key for which is_int_key() is true.
Value int_key(std::string_view digits);

/// The integer that equals a float in Python; nullopt for fractions, infinities and NaN.
std::optional<Value> int_key(double number);

/// The typed key whose key_text() is `text`; null if there is none. `keys` must be sorted.
const Value* find_typed_key(const TypedKeys& keys, std::string_view text) noexcept;

/// True if each key is a typed key, its string is key_text(), and the strings are sorted and
/// distinct. Also, no two keys may be equal in Python, where 1 == 1.0 == True. NaN counts as equal
/// to NaN.
bool are_valid(const TypedKeys& keys);

/// True if `texts` contains the key_text() of every key.
bool are_all_among(const TypedKeys& keys, std::span<const std::string> texts);

/// `keys`: all keys of the node that `info` describes. If info.int_keys is set but not all of them
/// are integers, clears info.int_keys and adds the keys that are integers to info.typed_keys.
void fit_int_keys(NodeInfo& info, std::span<const std::string> keys);

/// Collects the types of the keys of one dict, in the order of its entries.
class KeyTypes {
 public:
  void add_text() { kinds_.push_back(Kind::text); }
  void add_int() { kinds_.push_back(Kind::integer); }
  /// Adds a key that is neither a string nor an int.
  void add(std::string text, Value key);

  bool empty() const noexcept { return kinds_.empty(); }
  /// True if the key of entry `position` is a string. A string and a typed key whose key_text() is
  /// this string are different keys. Two typed keys with equal key_text() are the same key, unless
  /// they contain NaN.
  bool is_text(std::size_t position) const noexcept { return kinds_[position] == Kind::text; }

  /// Sets `int_keys` or `typed_keys` of a NodeInfo or a Value::Object, or neither if all keys are
  /// strings. `text_at(i)` is the string of entry i. Returns false, and sets neither, if the typed
  /// keys are invalid, for example because two keys are equal in Python.
  template <class Info, class TextAt>
  [[nodiscard]] bool finish(Info& info, const TextAt& text_at) && {
    if (kinds_.empty()) return true;
    std::size_t num_ints = 0;
    for (const Kind kind : kinds_) num_ints += kind == Kind::integer ? 1 : 0;
    if (num_ints == kinds_.size()) {
      info.int_keys = true;
      return true;
    }
    if (num_ints == 0 && others_.empty()) return true;
    for (std::size_t i = 0; i < kinds_.size(); ++i) {
      if (kinds_[i] == Kind::integer) others_.emplace_back(text_at(i), int_key(text_at(i)));
    }
    sort(others_);
    if (!are_valid(others_)) return false;
    info.typed_keys = std::move(others_);
    return true;
  }

 private:
  enum class Kind : std::uint8_t { text, integer, other };
  static void sort(TypedKeys& keys);

  std::vector<Kind> kinds_;
  TypedKeys others_;
};

}  // namespace tenfold

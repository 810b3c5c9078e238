#include "core/tree/typed_keys.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <unordered_set>
#include <utility>

#include "base/text.hpp"

namespace tenfold {
namespace {

/// Like Python's repr() of a string, but always in single quotes, and only single quotes and
/// backslashes are escaped.
std::string quoted_text(const std::string& text) {
  std::string made = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') made += '\\';
    made += c;
  }
  return made + "'";
}

std::string tuple_text(const Value::Tuple& tuple, std::string (*text_of)(const Value&)) {
  std::string text = "(";
  for (std::size_t i = 0; i < tuple.items.size(); ++i) {
    if (i > 0) text += ", ";
    text += text_of(tuple.items[i]);
  }
  return text + (tuple.items.size() == 1 ? ",)" : ")");
}

std::string part_text(const Value& part) {
  if (const auto* text = part.get_if<std::string>()) return quoted_text(*text);
  return key_text(part);
}

/// A string that is the same for all keys that are equal in Python. All NaNs have one string,
/// although NaN equals no key, so a dict of typed keys has at most one NaN.
std::string equality_text(const Value& key) {
  if (const auto* flag = key.get_if<bool>()) return *flag ? "1" : "0";
  if (const auto* text = key.get_if<std::string>()) return quoted_text(*text);
  if (const auto* tuple = key.get_if<Value::Tuple>()) return tuple_text(*tuple, equality_text);
  const auto* number = key.get_if<double>();
  const auto equal = number == nullptr ? std::nullopt : int_key(*number);
  return key_text(equal ? *equal : key);
}

}  // namespace

bool is_typed_key(const Value& key) noexcept {
  if (const auto* tuple = key.get_if<Value::Tuple>()) {
    return std::all_of(tuple->items.begin(), tuple->items.end(), [](const Value& part) {
      return part.is<std::string>() || is_typed_key(part);
    });
  }
  return key.is_null() || key.is<bool>() || key.is<std::int64_t>() || key.is<Value::BigInt>() ||
         key.is<double>();
}

bool has_nan(const Value& key) noexcept {
  if (const auto* tuple = key.get_if<Value::Tuple>()) {
    return std::any_of(tuple->items.begin(), tuple->items.end(), has_nan);
  }
  const auto* number = key.get_if<double>();
  return number != nullptr && std::isnan(*number);
}

std::string key_text(const Value& key) {
  if (key.is_null()) return "None";
  if (const auto* flag = key.get_if<bool>()) return *flag ? "True" : "False";
  if (const auto* tuple = key.get_if<Value::Tuple>()) return tuple_text(*tuple, part_text);
  if (const auto* number = key.get_if<double>(); number != nullptr && !std::isfinite(*number)) {
    return std::isnan(*number) ? "nan" : *number > 0 ? "inf" : "-inf";
  }
  return to_json(key);
}

bool is_int_key(std::string_view text) noexcept {
  if (text.starts_with('-')) {
    text.remove_prefix(1);
    if (text == "0") return false;
  }
  if (text.empty() || (text.front() == '0' && text.size() > 1)) return false;
  return std::ranges::all_of(text, base::is_digit);
}

Value int_key(std::string_view digits) {
  std::int64_t small = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stopped, error] = std::from_chars(digits.data(), end, small);
  if (error == std::errc() && stopped == end) return {small};
  return {Value::BigInt{std::string(digits)}};
}

std::optional<Value> int_key(double number) {
  if (!std::isfinite(number) || std::trunc(number) != number) return std::nullopt;
  std::array<char, 320> digits;  // the largest double has 309
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number,
                                 std::chars_format::fixed, 0)
                       .ptr;
  return int_key({digits.data(), end});
}

const Value* find_typed_key(const TypedKeys& keys, std::string_view text) noexcept {
  const auto found = std::ranges::lower_bound(
      keys, text, {}, [](const auto& entry) -> std::string_view { return entry.first; });
  return found != keys.end() && found->first == text ? &found->second : nullptr;
}

bool are_valid(const TypedKeys& keys) {
  std::unordered_set<std::string> seen;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto& [text, key] = keys[i];
    if (!is_typed_key(key) || key_text(key) != text) return false;
    if (i > 0 && keys[i - 1].first >= text) return false;
    if (!seen.insert(equality_text(key)).second) return false;
  }
  return true;
}

bool are_all_among(const TypedKeys& keys, std::span<const std::string> texts) {
  const std::unordered_set<std::string_view> known(texts.begin(), texts.end());
  return std::ranges::all_of(keys, [&](const auto& entry) { return known.contains(entry.first); });
}

void fit_int_keys(NodeInfo& info, std::span<const std::string> keys) {
  const auto is_int = [](const std::string& key) { return is_int_key(key); };
  if (!info.int_keys || std::ranges::all_of(keys, is_int)) return;
  info.int_keys = false;
  for (const std::string& key : keys) {
    if (is_int(key)) info.typed_keys.emplace_back(key, int_key(key));
  }
  std::ranges::sort(info.typed_keys, {}, &TypedKeys::value_type::first);
}

void KeyTypes::add(std::string text, Value key) {
  kinds_.push_back(Kind::other);
  others_.emplace_back(std::move(text), std::move(key));
}

void KeyTypes::sort(TypedKeys& keys) {
  std::ranges::sort(keys, {}, [](const auto& entry) -> const std::string& { return entry.first; });
}

}  // namespace tenfold

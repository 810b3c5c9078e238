#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <tenfold/value.hpp>

#include "base/fail.hpp"
#include "codecs/json/json.hpp"

namespace tenfold {

/// Formats a value as JSON in one of the layouts of Python's json.dumps. A tuple becomes an array,
/// an extended scalar is written as documented at Value::Special. Throws Error(invalid_argument) if
/// a string or key is not UTF-8; encoded lone surrogates are allowed. Throws Error(unsupported) for
/// more than kMaxJsonDepth levels.
std::string to_json(const Value& value, codecs::JsonStyle style);

/// The start of to_json(value), at most 60 bytes and "...", for a message.
std::string short_json(const Value& value);

/// Like from_json() of <tenfold/value.hpp>, but `where` may name a part of a file.
Value parse_value(std::string_view text, const base::Where& where);

/// Writes a value as the next item of a document.
void write_json(const Value& value, codecs::JsonWriter& writer);

/// Calls `use` for the items of a list, tuple or extended scalar, or the values of an object.
template <class AnyValue, class Use>
void for_each_child(AnyValue& value, const Use& use) {
  const auto each = [&](auto& items) {
    for (auto& item : items) use(item);
  };
  if (auto* list = std::get_if<Value::List>(&value.data())) each(list->items);
  if (auto* tuple = std::get_if<Value::Tuple>(&value.data())) each(tuple->items);
  if (auto* special = std::get_if<Value::Special>(&value.data())) each(special->items);
  if (auto* object = std::get_if<Value::Object>(&value.data())) {
    for (auto& member : object->members) use(member.second);
  }
}

/// Searches `value` and the values nested in it, depth first, and returns the first for which
/// `wanted` returns true; null if there is none.
template <class Wanted>
const Value* find_in(const Value& value, const Wanted& wanted) {
  if (wanted(value)) return &value;
  const Value* found = nullptr;
  for_each_child(value, [&](const Value& child) {
    if (found == nullptr) found = find_in(child, wanted);
  });
  return found;
}

/// Builds a Value from the events of one JSON document (or of one item of a document). Throws
/// Error(corrupt), which names `where` and the key, if an object has duplicate keys.
class ValueBuilder final : public codecs::JsonHandler {
 public:
  explicit ValueBuilder(base::Where where) : where_(std::move(where)) {}

  /// True once the value is complete.
  bool done() const noexcept { return done_; }
  /// Returns the value. The builder can then be used for another value.
  Value take();

  void null() override { add(Value()); }
  void boolean(bool value) override { add(value); }
  void integer(std::int64_t value) override { add(value); }
  void big_integer(std::string_view digits) override { add(Value::BigInt{std::string(digits)}); }
  void number(double value) override { add(value); }
  void string(std::string_view value) override { add(value); }
  void begin_object() override { open_.emplace_back(Value::Object{}); }
  void key(std::string_view value) override { keys_.emplace_back(value); }
  void end_object() override;
  void begin_array() override { open_.emplace_back(Value::List{}); }
  void end_array() override { close(); }

 private:
  void add(Value value);
  void close();

  base::Where where_;
  std::vector<Value> open_;        ///< containers that have not ended, outermost first
  std::vector<std::string> keys_;  ///< keys of members whose value has not ended, outermost first
  Value root_;
  bool done_ = false;
};

}  // namespace tenfold

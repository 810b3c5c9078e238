#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tenfold/tensor.hpp>
#include <tenfold/value.hpp>

// The messages between the ranks and the coordinator of a snapshot: one JSON object each, whose
// member "kind" is the type of the message.

namespace tenfold::detail::snapshot_ranks {

/// Throws the Error(invalid_argument) for a string that is not a message of that kind.
[[noreturn]] void refuse_message(const std::string& kind);

/// Reads and validates a message of one kind.
class MessageReader {
 public:
  MessageReader(std::string_view kind, std::string_view text);

  template <class T>
  const T& as(const Value& value) const {
    const T* found = value.get_if<T>();
    if (found == nullptr) refuse_message(kind_);
    return *found;
  }
  const Value& at(std::string_view name) const;
  const std::string& text(std::string_view name) const { return as<std::string>(at(name)); }
  std::int64_t number(std::string_view name) const { return as<std::int64_t>(at(name)); }
  const std::vector<Value>& items(const Value& value, std::optional<std::size_t> count = {}) const;
  /// Returns the integers of a list. Throws like refuse_message() if one is negative.
  Shape numbers(const Value& value) const;
  DType dtype(const Value& value) const;

 private:
  std::string kind_;
  Value document_;
};

/// Returns an object whose first member "kind" is `kind`.
Value::Object message(std::string_view kind);

template <class Numbers>
Value list_of(const Numbers& numbers) {
  Value::List list;
  for (const auto number : numbers) list.items.emplace_back(static_cast<std::int64_t>(number));
  return list;
}

inline Value tuple_of(std::vector<Value> items) { return Value::List{std::move(items)}; }

}  // namespace tenfold::detail::snapshot_ranks

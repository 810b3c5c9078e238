#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>
#include <tenfold/value.hpp>

#include "base/base64.hpp"
#include "base/fail.hpp"
#include "core/value/value_reader.hpp"

// The messages between the ranks and the coordinator of a snapshot: one JSON object each, whose
// member "kind" is the type of the message.

namespace tenfold::detail::snapshot_ranks {

/// Throws the Error(invalid_argument) for a string that is not a message of `kind`.
[[noreturn]] inline void refuse_message(std::string_view kind) {
  throw base::invalid_argument()
      .part(kind)
      .expected("an unmodified message of this snapshot")
      .found("another string");
}

/// Parses `text`, checks that it is a message of `kind`, calls `read` with the object and returns
/// the result. If any of these steps throws an Error, `read` included, throws the error of
/// refuse_message() instead.
template <class Read>
auto read_message(std::string_view kind, std::string_view text, const Read& read) {
  try {
    const Value document = from_json(text, kind);
    const base::Where where(kind);
    const ValueReader reader(document, where);
    if (reader.at("kind").text() == kind) return read(reader);
  } catch (const Error&) {
    // refused below
  }
  refuse_message(kind);
}

/// Decodes a base64 string. Throws Error(corrupt) for any other value.
inline std::string decoded(const ValueReader& reader) {
  std::optional<std::string> bytes = base::from_base64(reader.text());
  if (!bytes) reader.fail("base64");
  return *std::move(bytes);
}

/// Returns an object whose first member "kind" is `kind`.
inline Value::Object message(std::string_view kind) {
  Value::Object made;
  made.members.emplace_back("kind", Value(kind));
  return made;
}

template <class Numbers>
Value list_of(const Numbers& numbers) {
  Value::List list;
  for (const auto number : numbers) list.items.emplace_back(static_cast<std::int64_t>(number));
  return list;
}

inline Value tuple_of(std::vector<Value> items) { return Value::List{std::move(items)}; }

}  // namespace tenfold::detail::snapshot_ranks

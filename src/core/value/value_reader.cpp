#include "core/value/value_reader.hpp"

#include <limits>

#include "base/text.hpp"

namespace tenfold {
namespace {

std::string shown_value(const Value& value) {
  constexpr std::size_t kShownBytes = 60;
  if (const auto* text = value.get_if<std::string>()) return base::quote(*text, kShownBytes);
  if (value.is<Value::List>()) return "an array";
  if (value.is<Value::Object>()) return "an object";
  const std::string text = to_json(value);  // ASCII
  return text.size() <= kShownBytes ? text : text.substr(0, kShownBytes) + "...";
}

}  // namespace

std::int64_t ValueReader::integer(std::int64_t least) const {
  const auto* found = value_->get_if<std::int64_t>();
  if (found != nullptr && *found >= least) return *found;
  if (value_->is<Value::BigInt>()) fail("a signed integer of 64 bits");
  const bool is_any = least == std::numeric_limits<std::int64_t>::min();
  fail("an integer" + (is_any ? "" : " of " + std::to_string(least) + " or more"));
}

Shape ValueReader::lengths() const {
  const auto& list = as<Value::List>("an array").items;
  Shape lengths;
  lengths.reserve(list.size());
  for (std::size_t i = 0; i < list.size(); ++i) {
    const auto* length = list[i].get_if<std::int64_t>();
    const bool is_length = length != nullptr && *length >= 0;
    lengths.push_back(is_length ? *length : ValueReader(list[i], *where_, path_of(i)).integer());
  }
  return lengths;
}

DType ValueReader::dtype() const {
  const auto found = dtype_from_name(text());
  if (!found) fail("a dtype of torch");
  return *found;
}

void ValueReader::require_version(std::int64_t newest) const {
  const std::int64_t version = integer(1);
  if (version <= newest) return;
  throw base::unsupported(place())
      .expected(newest, " at most")
      .found(version)
      .remedy("use a newer version of tenfold");
}

ValueReader ValueReader::at(std::string_view key) const {
  if (auto found = find(key)) return *std::move(found);
  throw ValueReader(*value_, *where_, path_of(key)).error().problem("is missing");
}

std::optional<ValueReader> ValueReader::find(std::string_view key) const {
  const Value* found = object().find(key);
  if (found == nullptr) return std::nullopt;
  return ValueReader(*found, *where_, path_of(key));
}

std::vector<std::pair<std::string_view, ValueReader>> ValueReader::members() const {
  std::vector<std::pair<std::string_view, ValueReader>> made;
  for (const auto& [key, value] : object().members) {
    made.emplace_back(key, ValueReader(value, *where_, path_of(key)));
  }
  return made;
}

std::vector<ValueReader> ValueReader::items(std::optional<std::size_t> count) const {
  const auto& list = as<Value::List>("an array").items;
  if (count && list.size() != *count) {
    throw error().expected("an array of ", *count).found("one of ", list.size());
  }
  std::vector<ValueReader> made;
  made.reserve(list.size());
  for (std::size_t i = 0; i < list.size(); ++i) made.emplace_back(list[i], *where_, path_of(i));
  return made;
}

base::Where ValueReader::place() const {
  return path_.empty() ? *where_ : where_->at("member " + base::quote(path_));
}

void ValueReader::fail(std::string_view expected) const {
  throw error().expected(expected).found(shown_value(*value_));
}

std::string ValueReader::path_of(std::string_view key) const {
  return path_.empty() ? std::string(key) : path_ + "." + std::string(key);
}

std::string ValueReader::path_of(std::size_t position) const {
  return path_ + "[" + std::to_string(position) + "]";
}

}  // namespace tenfold

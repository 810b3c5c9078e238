#include "core/value/value_reader.hpp"

#include <limits>
#include <optional>
#include <string>

#include "base/text.hpp"
#include "core/value/value_json.hpp"

namespace tenfold {
namespace {

std::string shown_value(const Value& value) {
  constexpr std::size_t kMaxShown = 60;
  if (const auto* text = value.get_if<std::string>()) return base::quote(*text, kMaxShown);
  if (value.is<Value::List>()) return "an array";
  if (value.is<Value::Object>()) return "an object";
  return short_json(value);
}

std::string member_path(const std::string& parent, std::string_view key) {
  return parent.empty() ? std::string(key) : parent + "." + std::string(key);
}

/// Returns the path of `value` if it is `within` or a descendant of `within`, compared by address.
/// Otherwise returns nullopt. `path`: the path of `within`.
std::optional<std::string> path_to(const Value& value, const Value& within,
                                   const std::string& path) {
  if (&value == &within) return path;
  std::optional<std::string> found;
  if (const auto* object = within.get_if<Value::Object>()) {
    for (const auto& [key, member] : object->members) {
      found = path_to(value, member, member_path(path, key));
      if (found) break;
    }
  } else if (const auto* list = within.get_if<Value::List>()) {
    for (std::size_t i = 0; i < list->items.size() && !found; ++i) {
      found = path_to(value, list->items[i], path + "[" + std::to_string(i) + "]");
    }
  }
  return found;
}

base::Where place_of(const base::Where& where, const std::string& path) {
  return path.empty() ? where : where.at("member " + base::quote(path));
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
    lengths.push_back(is_length ? *length : within(list[i]).integer());
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
  if (const auto found = find(key)) return *found;
  throw base::corrupt(place_of(*where_, member_path(path(), key))).problem("is missing");
}

std::optional<ValueReader> ValueReader::find(std::string_view key) const {
  const Value* found = object().find(key);
  if (found == nullptr) return std::nullopt;
  return within(*found);
}

std::vector<std::pair<std::string_view, ValueReader>> ValueReader::members() const {
  std::vector<std::pair<std::string_view, ValueReader>> made;
  for (const auto& [key, value] : object().members) {
    made.emplace_back(key, within(value));
  }
  return made;
}

std::vector<ValueReader> ValueReader::items(std::optional<std::size_t> count) const {
  const auto& list = as<Value::List>("an array").items;
  if (count && list.size() != *count) {
    throw error().expected("an array of ", *count, " items").found(list.size());
  }
  std::vector<ValueReader> made;
  made.reserve(list.size());
  for (const Value& item : list) made.push_back(within(item));
  return made;
}

void ValueReader::fail(std::string_view expected) const {
  throw error().expected(expected).found(shown_value(*value_));
}

base::Where ValueReader::place() const { return place_of(*where_, path()); }

std::string ValueReader::path() const { return path_to(*value_, *document_, "").value_or(""); }

}  // namespace tenfold

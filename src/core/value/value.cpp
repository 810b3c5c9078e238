#include <tenfold/value.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <ostream>
#include <string>
#include <unordered_set>
#include <utility>

#include <tenfold/error.hpp>

#include "base/base64.hpp"
#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/value/value_json.hpp"

namespace tenfold {
namespace {

template <class... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};

/// Bytes of a value that messages show.
constexpr std::size_t kShownBytes = 60;

using Member = std::pair<std::string, Value>;

std::vector<const Member*> sorted_by_key(const std::vector<Member>& members) {
  std::vector<const Member*> sorted;
  sorted.reserve(members.size());
  for (const Member& member : members) sorted.push_back(&member);
  std::sort(sorted.begin(), sorted.end(),
            [](const Member* a, const Member* b) { return a->first < b->first; });
  return sorted;
}

/// The first duplicate key, or null.
const std::string* duplicate_key(const std::vector<Member>& members) {
  constexpr std::size_t kFew = 8;
  if (members.size() <= kFew) {
    for (std::size_t i = 1; i < members.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        if (members[i].first == members[j].first) return &members[i].first;
      }
    }
    return nullptr;
  }
  std::unordered_set<std::string_view> seen;
  seen.reserve(members.size());
  for (const Member& member : members) {
    if (!seen.insert(member.first).second) return &member.first;
  }
  return nullptr;
}

void write_items(const std::vector<Value>& items, codecs::JsonWriter& writer) {
  writer.begin_array();
  for (const Value& item : items) write_json(item, writer);
  writer.end_array();
}

void write_object(const Value::Object& object, codecs::JsonWriter& writer) {
  writer.begin_object();
  for (const auto& [key, value] : object.members) {
    writer.key(key);
    write_json(value, writer);
  }
  writer.end_object();
}

void write_special(const Value::Special& special, codecs::JsonWriter& writer) {
  switch (special.type) {
    using enum Value::Special::Type;
    case bytes:
    case bytearray:
      return writer.string(base::base64(special.text));
    case dtype:
    case device:
    case layout:
    case qscheme:
      return writer.string(special.text);
    case counter:
      return special.items.empty() ? write_object({}, writer)
                                   : write_json(special.items.front(), writer);
    case complex:
    case set:
    case frozenset:
    case size:
      return write_items(special.items, writer);
  }
}

/// The names of the types, in the order of Value::Special::Type.
constexpr std::array<std::string_view, 11> kSpecialNames = {
    "bytes",      "bytearray",   "complex",      "set",          "frozenset",    "Counter",
    "torch.Size", "torch.dtype", "torch.device", "torch.layout", "torch.qscheme"};

}  // namespace

bool Value::List::operator==(const List&) const = default;
bool Value::Tuple::operator==(const Tuple&) const = default;
bool Value::Special::operator==(const Special&) const = default;

bool Value::Object::operator==(const Object& other) const {
  if (int_keys != other.int_keys || ordered != other.ordered) return false;
  if (typed_keys != other.typed_keys) return false;
  if (members.size() != other.members.size()) return false;
  // If the keys are in the same order, compare only in that order. A second comparison after a
  // mismatch would double the work at every level of nesting.
  const bool same_order =
      std::equal(members.begin(), members.end(), other.members.begin(),
                 [](const Member& a, const Member& b) { return a.first == b.first; });
  if (same_order) return members == other.members;
  // As in Python, order matters only between two OrderedDicts.
  if (ordered) return false;
  const auto mine = sorted_by_key(members);
  const auto theirs = sorted_by_key(other.members);
  return std::equal(mine.begin(), mine.end(), theirs.begin(),
                    [](const Member* a, const Member* b) { return *a == *b; });
}

const Value* Value::Object::find(std::string_view key) const noexcept {
  for (const auto& [name, value] : members) {
    if (name == key) return &value;
  }
  return nullptr;
}

std::string_view Value::type_name() const noexcept {
  if (const auto* special = get_if<Special>())
    return kSpecialNames[static_cast<std::size_t>(special->type)];
  // In the order of the alternatives of Variant. std::visit is not used, because it may throw.
  constexpr auto kNames = std::to_array<std::string_view>(
      {"null", "bool", "int", "int", "float", "str", "list", "tuple", "dict"});
  static_assert(kNames.size() + 1 == std::variant_size_v<Variant>);
  return data_.index() < kNames.size() ? kNames[data_.index()] : "null";
}

bool Value::operator==(const Value& other) const {
  const double* mine = get_if<double>();
  const double* theirs = other.get_if<double>();
  if (mine != nullptr && theirs != nullptr && std::isnan(*mine) && std::isnan(*theirs)) return true;
  return data_ == other.data_;
}

void Value::fail_as(std::string_view what, const std::string& expected) const {
  std::string found(type_name());
  if (const auto* text = get_if<std::string>(); text != nullptr && !base::is_utf8(*text)) {
    found += ' ' + base::quote(*text, kShownBytes);
  } else if (!is_null()) {
    try {
      found += ' ' + short_json(*this);
    } catch (const Error&) {
      // JSON cannot represent the value: it is nested too deep, or a string in it is not UTF-8. So
      // only its type is shown.
    }
  }
  throw base::invalid_argument().part(what).expected(expected).found(found);
}

std::optional<std::uint64_t> Value::unsigned_of_digits() const noexcept {
  const auto* large = get_if<BigInt>();
  if (large == nullptr) return std::nullopt;
  const char* end = large->digits.data() + large->digits.size();
  std::uint64_t number = 0;
  const auto [next, error] = std::from_chars(large->digits.data(), end, number);
  if (error != std::errc() || next != end) return std::nullopt;
  return number;
}

const std::vector<Value>* Value::items_of_list() const noexcept {
  if (const auto* list = get_if<List>()) return &list->items;
  if (const auto* tuple = get_if<Tuple>()) return &tuple->items;
  return nullptr;
}

std::ostream& operator<<(std::ostream& out, const Value& value) { return out << to_json(value); }

std::string to_string(Value::Special::Type type) {
  return std::string(kSpecialNames[static_cast<std::size_t>(type)]);
}

std::optional<Value::Special::Type> special_type_from_name(std::string_view name) noexcept {
  const auto* const found = std::find(kSpecialNames.begin(), kSpecialNames.end(), name);
  if (found == kSpecialNames.end()) return std::nullopt;
  return static_cast<Value::Special::Type>(found - kSpecialNames.begin());
}

Value ValueBuilder::take() {
  done_ = false;
  return std::move(root_);
}

void ValueBuilder::add(Value value) {
  if (open_.empty()) {
    root_ = std::move(value);
    done_ = true;
  } else if (auto* list = std::get_if<Value::List>(&open_.back().data())) {
    list->items.push_back(std::move(value));
  } else {
    auto& object = std::get<Value::Object>(open_.back().data());
    object.members.emplace_back(std::move(keys_.back()), std::move(value));
    keys_.pop_back();
  }
}

void ValueBuilder::close() {
  Value closed = std::move(open_.back());
  open_.pop_back();
  add(std::move(closed));
}

void ValueBuilder::end_object() {
  const auto& members = std::get<Value::Object>(open_.back().data()).members;
  if (const std::string* key = duplicate_key(members)) {
    throw base::corrupt(where_)
        .part("key ", base::quote(*key))
        .problem("duplicate key in a json object")
        .expected("each key once")
        .found("the key again");
  }
  close();
}

void write_json(const Value& value, codecs::JsonWriter& writer) {
  std::visit(Overloaded{
                 [&](Value::Null) { writer.null(); },
                 [&](bool item) { writer.boolean(item); },
                 [&](std::int64_t item) { writer.integer(item); },
                 [&](const Value::BigInt& item) { writer.big_integer(item.digits); },
                 [&](double item) { writer.number(item); },
                 [&](const std::string& item) { writer.string(item); },
                 [&](const Value::List& item) { write_items(item.items, writer); },
                 [&](const Value::Tuple& item) { write_items(item.items, writer); },
                 [&](const Value::Object& item) { write_object(item, writer); },
                 [&](const Value::Special& item) { write_special(item, writer); },
             },
             value.data());
}

std::string to_json(const Value& value, codecs::JsonStyle style) {
  codecs::JsonWriter writer(style);
  write_json(value, writer);
  return writer.take();
}

std::string to_json(const Value& value) { return to_json(value, codecs::JsonStyle::python); }

std::string short_json(const Value& value) {
  std::string json = to_json(value);  // ASCII, without control characters
  if (json.size() > kShownBytes) json.replace(kShownBytes, std::string::npos, "...");
  return json;
}

Value parse_value(std::string_view text, const base::Where& where) {
  ValueBuilder builder(where);
  codecs::parse_json(text, where, builder);
  return builder.take();
}

Value from_json(std::string_view text, std::string_view where) { return parse_value(text, where); }

}  // namespace tenfold

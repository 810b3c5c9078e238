#include "io/diff/json_difference.hpp"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/text.hpp"

namespace tenfold {
namespace {

constexpr std::size_t kMaxTextBytes = 200;

std::string typed(const Value& value) {
  const auto* object = value.get_if<Value::Object>();
  if (object == nullptr) return std::string(value.type_name());
  std::string text = "dict";
  if (object->int_keys) text += " of int keys";
  for (const auto& [key, typed_key] : object->typed_keys) {
    text += (&key == &object->typed_keys.front().first ? " of keys " : ", ") + key + " (" +
            std::string(typed_key.type_name()) + ")";
  }
  return text;
}

/// ASCII, which may be cut anywhere.
std::string shortened(std::string text) {
  if (text.size() > kMaxTextBytes) text.replace(kMaxTextBytes - 3, std::string::npos, "...");
  return text;
}

/// What a list and a tuple hold; null of another value.
const std::vector<Value>* items_of(const Value& value) {
  if (const auto* list = value.get_if<Value::List>()) return &list->items;
  if (const auto* tuple = value.get_if<Value::Tuple>()) return &tuple->items;
  return nullptr;
}

class Descent {
 public:
  JsonDifference compare(const Value& a, const Value& b) {
    if (a.data().index() == b.data().index()) {
      if (const auto* items = items_of(a)) return compare_items(a, b, *items, *items_of(b));
      if (a.is<Value::Object>() && typed(a) == typed(b)) return compare_members(a, b);
    }
    return told_apart(a, b);
  }

 private:
  JsonDifference compare_items(const Value& a, const Value& b, const std::vector<Value>& left,
                               const std::vector<Value>& right) {
    for (std::size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
      if (left[i] == right[i]) continue;
      const Step step(*this, std::to_string(i));
      return compare(left[i], right[i]);
    }
    const auto count = [&](const Value& value, std::size_t size) {
      return typed(value) + " of " + std::to_string(size);
    };
    return placed({count(a, left.size()), count(b, right.size())});
  }

  JsonDifference compare_members(const Value& a, const Value& b) {
    const auto& left = *a.get_if<Value::Object>();
    const auto& right = *b.get_if<Value::Object>();
    std::unordered_map<std::string_view, const Value*> of_right;
    for (const auto& [key, value] : right.members) of_right.emplace(key, &value);
    for (const auto& [key, value] : left.members) {
      const auto other = of_right.find(key);
      const bool is_there = other != of_right.end();
      if (is_there && *other->second == value) {
        of_right.erase(other);
        continue;
      }
      const Step step(*this, key);
      if (!is_there) return placed({short_json(value), "nothing"});
      return compare(value, *other->second);
    }
    for (const auto& [key, value] : right.members) {
      if (!of_right.contains(key)) continue;
      const Step step(*this, key);
      return placed({"nothing", short_json(value)});
    }
    return told_apart(a, b);
  }

  JsonDifference told_apart(const Value& a, const Value& b) const {
    JsonDifference found = {short_json(a), short_json(b)};
    if (found.a == found.b) {
      found.a.insert(0, typed(a) + " ");
      found.b.insert(0, typed(b) + " ");
    }
    if (found.a == found.b) tell_long_text_apart(to_json(a), to_json(b), found);
    return placed(std::move(found));
  }

  static void tell_long_text_apart(const std::string& a, const std::string& b,
                                   JsonDifference& found) {
    const std::size_t shorter = std::min(a.size(), b.size());
    const auto at = static_cast<std::size_t>(
        std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(shorter), b.begin())
            .first -
        a.begin());
    const auto from = [&](const std::string& text) {
      return "from byte " + std::to_string(at) + " of " + std::to_string(text.size()) + ": " +
             shortened(text.substr(at));
    };
    found = {from(a), from(b)};
  }

  JsonDifference placed(JsonDifference found) const {
    if (place_.empty()) return found;
    return {place_ + ": " + found.a, place_ + ": " + found.b};
  }

  /// One level further down.
  class Step {
   public:
    Step(Descent& of, const std::string& key) : of_(of), size_before_(of.place_.size()) {
      of_.place_ += (size_before_ == 0 ? "" : ".") + key;
    }
    ~Step() { of_.place_.resize(size_before_); }
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;

   private:
    Descent& of_;
    std::size_t size_before_;
  };

  std::string place_;
};

}  // namespace

std::string short_json(const Value& value) { return shortened(to_json(value)); }

Value unordered(Value value) {
  const auto each = [](std::vector<Value>& items) {
    for (Value& item : items) item = unordered(std::move(item));
  };
  if (auto* list = std::get_if<Value::List>(&value.data())) each(list->items);
  if (auto* tuple = std::get_if<Value::Tuple>(&value.data())) each(tuple->items);
  if (auto* special = std::get_if<Value::Special>(&value.data())) each(special->items);
  if (auto* object = std::get_if<Value::Object>(&value.data())) {
    object->ordered = false;
    for (auto& [key, member] : object->members) member = unordered(std::move(member));
  }
  return value;
}

JsonDifference json_difference(const Value& a, const Value& b) { return Descent().compare(a, b); }

}  // namespace tenfold

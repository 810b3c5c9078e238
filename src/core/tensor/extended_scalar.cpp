#include "core/tensor/extended_scalar.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "base/base64.hpp"
#include "core/tensor/torch_names.hpp"
#include "core/value/value_json.hpp"

namespace tenfold {

using Special = Value::Special;

namespace {

using enum Special::Type;

bool all(const std::vector<Value>& items, bool (*holds)(const Value&) noexcept) {
  return std::all_of(items.begin(), items.end(), holds);
}

bool is_number(const Value& value) noexcept { return value.is<double>(); }
bool is_integer(const Value& value) noexcept { return value.is<std::int64_t>(); }

}  // namespace

std::optional<Special> special_from_json(Special::Type type, const Value& plain) {
  Special special;
  special.type = type;
  const auto* text = plain.get_if<std::string>();
  const auto* list = plain.get_if<Value::List>();
  switch (type) {
    case Special::Type::bytes:
    case bytearray: {
      auto decoded = text == nullptr ? std::nullopt : base::from_base64(*text);
      if (!decoded) return std::nullopt;
      special.text = *std::move(decoded);
      return special;
    }
    case device:
    case layout:
      if (text == nullptr) return std::nullopt;
      if (type == device ? !is_torch_device(*text) : !is_torch_layout(*text)) return std::nullopt;
      special.text = *text;
      return special;
    case dtype:
    case qscheme:
      if (text == nullptr) return std::nullopt;
      special.text = *text;
      return special;
    case counter:
      if (!plain.is<Value::Object>()) return std::nullopt;
      special.items.push_back(plain);
      return special;
    case Special::Type::complex:
    case set:
    case frozenset:
    case size:
      if (list == nullptr) return std::nullopt;
      special.items = list->items;
      return special;
  }
  return std::nullopt;
}

bool is_hashable(const Value& value) noexcept {
  if (const auto* tuple = value.get_if<Value::Tuple>()) return all(tuple->items, is_hashable);
  if (const auto* special = value.get_if<Special>()) {
    return special->type != bytearray && special->type != set && special->type != counter;
  }
  return !value.is<Value::List>() && !value.is<Value::Object>();
}

bool is_valid(const Special& special) noexcept {
  switch (special.type) {
    case Special::Type::complex:
      return special.items.size() == 2 && all(special.items, is_number);
    case set:
    case frozenset:
      return all(special.items, is_hashable);
    case size:
      return all(special.items, is_integer);
    default:
      return true;
  }
}

}  // namespace tenfold

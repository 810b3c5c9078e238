#include "ingest/arrow/value.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/base64.hpp"
#include "base/text.hpp"
#include "ingest/bad_row.hpp"
#include "ingest/table/convert_chunk.hpp"

namespace tenfold {
namespace {

using OtherBytes = std::optional<std::string>;

Value text_value(std::string_view text, OtherBytes* other_bytes) {
  if (base::is_utf8(text)) return text;
  if (other_bytes != nullptr && !*other_bytes) *other_bytes = std::string(text);
  return shown_text(text);
}

Value list_value(const ArrowSlice& slice, std::int64_t i, OtherBytes* other_bytes) {
  const auto [begin, end] = slice.range_at(i);
  const ArrowSlice items = slice.items(begin, end - begin);
  Value::List list;
  for (std::int64_t k = 0; k < items.size; ++k) {
    list.items.push_back(arrow_value(items, k, other_bytes));
  }
  return list;
}

Value record_value(const ArrowSlice& slice, std::int64_t i, OtherBytes* other_bytes) {
  Value::Object object;
  for (std::size_t k = 0; k < slice.type->children.size(); ++k) {
    object.members.emplace_back(slice.type->children[k].name,
                                arrow_value(slice.field(k), i, other_bytes));
  }
  return object;
}

/// True if all keys are strings, and no two are equal.
bool has_unique_texts(const std::vector<std::pair<Value, Value>>& members) {
  std::vector<std::string_view> texts;
  texts.reserve(members.size());
  for (const auto& [key, value] : members) {
    const auto* text = key.get_if<std::string>();
    if (text == nullptr) return false;
    texts.push_back(*text);
  }
  std::ranges::sort(texts);
  return std::ranges::adjacent_find(texts) == texts.end();
}

Value map_value(const ArrowSlice& slice, std::int64_t i, OtherBytes* other_bytes) {
  const auto [begin, end] = slice.range_at(i);
  const ArrowSlice entries = slice.items(begin, end - begin);
  const ArrowSlice keys = entries.field(0);
  const ArrowSlice values = entries.field(1);
  std::vector<std::pair<Value, Value>> members;
  for (std::int64_t k = 0; k < entries.size; ++k) {
    auto& [key, value] = members.emplace_back();
    if (!entries.is_valid(k)) continue;  // its key and value are unchecked
    key = arrow_value(keys, k, other_bytes);
    value = arrow_value(values, k, other_bytes);
  }
  if (has_unique_texts(members)) {
    Value::Object object;
    for (auto& [key, value] : members) {
      object.members.emplace_back(std::move(std::get<std::string>(key.data())), std::move(value));
    }
    return object;
  }
  Value::List pairs;
  for (auto& [key, value] : members) {
    Value::List pair;
    pair.items.push_back(std::move(key));
    pair.items.push_back(std::move(value));
    pairs.items.emplace_back(std::move(pair));
  }
  return pairs;
}

}  // namespace

Value arrow_value(const ArrowSlice& slice, std::int64_t i, OtherBytes* other_bytes) {
  if (!slice.is_valid(i)) return {};
  if (slice.type->dictionary) return arrow_value(slice.entry(slice.index_at(i)), 0, other_bytes);
  switch (slice.type->kind) {
    case ArrowKind::null:
      break;
    case ArrowKind::boolean:
      return slice.bit_at(1, i);
    case ArrowKind::number:
      return number_value(slice.type->stored, slice.number_at(i));
    case ArrowKind::text:
    case ArrowKind::text_view:
    case ArrowKind::fixed_bytes:
      if (slice.type->is_binary) return base::base64(slice.text_at(i));
      return text_value(slice.text_at(i), other_bytes);
    case ArrowKind::decimal:
      return slice.decimal_at(i);
    case ArrowKind::list:
    case ArrowKind::list_view:
    case ArrowKind::fixed_list:
      return list_value(slice, i, other_bytes);
    case ArrowKind::record:
      return record_value(slice, i, other_bytes);
    case ArrowKind::map:
      return map_value(slice, i, other_bytes);
  }
  return {};
}

}  // namespace tenfold

#include "mapper/state_keys.hpp"

#include <cmath>
#include <string>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"

namespace tenfold {
namespace {

constexpr double kTwoTo63 = 9223372036854775808.0;

[[noreturn]] void refuse(const Value& state, const std::string& found) {
  throw base::invalid_argument()
      .part("state ", to_json(state))
      .expected("None, a bool, an int, a float, a str or a tuple of them")
      .found(found);
}

/// Normalises numbers as Python compares keys: equal numbers become one key. The exception is
/// documented at state_text().
Value plain(const Value& state) {
  if (const auto* truth = state.get_if<bool>()) return std::int64_t{*truth ? 1 : 0};
  if (const auto* number = state.get_if<double>()) {
    if (std::isnan(*number)) refuse(state, "NaN, which equals nothing");
    const bool is_whole = std::trunc(*number) == *number && std::abs(*number) < kTwoTo63;
    return is_whole ? Value(static_cast<std::int64_t>(*number)) : state;
  }
  if (const auto* tuple = state.get_if<Value::Tuple>()) {
    Value::List list;
    list.items.reserve(tuple->items.size());
    for (const Value& item : tuple->items) list.items.push_back(plain(item));
    return list;
  }
  const bool is_state = state.is_null() || state.is<std::int64_t>() || state.is<std::string>() ||
                        state.is<Value::BigInt>();
  if (!is_state) refuse(state, std::string(state.type_name()));
  return state;
}

}  // namespace

std::optional<StateKeyKind> state_key_kind_from_name(std::string_view name) noexcept {
  if (name == "int") return StateKeyKind::int64;
  if (name == "str") return StateKeyKind::text;
  if (name == "bytes") return StateKeyKind::bytes;
  if (name == "json") return StateKeyKind::json;
  return std::nullopt;
}

DictKeyType key_type_of(StateKeyKind kind) noexcept {
  if (kind == StateKeyKind::int64) return DictKeyType::int64;
  return kind == StateKeyKind::bytes ? DictKeyType::bytes : DictKeyType::string;
}

std::string state_text(const Value& state) { return to_json(plain(state)); }

std::pair<std::string_view, TensorDict> make_state_keys(std::span<const Value> states,
                                                        const ShownKey& shown) {
  std::vector<std::int64_t> numbers;
  std::vector<std::string> texts;
  for (const Value& state : states) {
    const Value key = plain(state);
    if (const auto* number = key.get_if<std::int64_t>()) numbers.push_back(*number);
    if (const auto* text = key.get_if<std::string>()) texts.push_back(*text);
  }
  if (numbers.size() == states.size()) {
    return {"int", make_state_index(std::span<const std::int64_t>(numbers), DictKeyType::int64, {},
                                    shown)};
  }
  const bool are_texts = texts.size() == states.size();
  if (!are_texts) {
    texts.clear();
    for (const Value& state : states) texts.push_back(state_text(state));
  }
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  return {are_texts ? "str" : "json", make_state_index(std::span<const std::string_view>(views),
                                                       DictKeyType::string, {}, shown)};
}

std::vector<std::int64_t> rows_of_states(const MappedDict& dict, StateKeyKind kind,
                                         std::span<const Value> states) {
  std::vector<std::int64_t> numbers;
  std::vector<std::string> made;
  std::vector<std::string_view> texts;
  std::vector<std::size_t> places;
  made.reserve(states.size());
  for (std::size_t i = 0; i < states.size(); ++i) {
    if (kind == StateKeyKind::json) {
      made.push_back(state_text(states[i]));
      texts.push_back(made.back());
      places.push_back(i);
      continue;
    }
    const Value state = plain(states[i]);
    if (const auto* number = state.get_if<std::int64_t>();
        number != nullptr && kind == StateKeyKind::int64) {
      numbers.push_back(*number);
      places.push_back(i);
    } else if (state.is<std::string>() && kind != StateKeyKind::int64) {
      texts.push_back(*states[i].get_if<std::string>());
      places.push_back(i);
    }
  }
  std::vector<std::int64_t> found;
  if (kind == StateKeyKind::int64) {
    found = dict.rows(std::span<const std::int64_t>(numbers));
  } else {
    found = dict.rows(std::span<const std::string_view>(texts));
  }
  std::vector<std::int64_t> rows(states.size(), -1);
  for (std::size_t i = 0; i < places.size(); ++i) rows[places[i]] = found[i];
  return rows;
}

}  // namespace tenfold

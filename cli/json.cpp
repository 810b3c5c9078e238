#include "json.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include "text.hpp"

namespace tenfold::cli {
namespace {

/// Appends a byte that is not valid UTF-8 as the escape of a lone surrogate, as surrogateescape in
/// Python does, so that readers can recover the byte. If three bytes encode a lone surrogate, which
/// a JSON string may contain, appends the escape of that surrogate and sets the size of `next` to
/// 3.
void append_byte(std::string_view text, CodePoint& next, std::string& out) {
  const auto byte = [&](std::size_t i) {
    return static_cast<std::uint32_t>(static_cast<unsigned char>(text[i]));
  };
  if (text.size() >= 3 && byte(0) == 0xed && byte(1) >= 0xa0 && byte(1) <= 0xbf &&
      (byte(2) & 0xc0U) == 0x80) {
    next.size_bytes = 3;
    out += fmt::format("\\ud{:03x}", (byte(1) & 0x3fU) << 6U | (byte(2) & 0x3fU));
  } else {
    out += fmt::format("\\udc{:02x}", byte(0));
  }
}

void append_string(std::string_view text, std::string& out) {
  out += '"';
  while (!text.empty()) {
    CodePoint next = first_code_point(text);
    if (!next.valid) {
      append_byte(text, next, out);
    } else if (next.value == '"' || next.value == '\\') {
      out += '\\';
      out += static_cast<char>(next.value);
    } else if (is_control(next.value)) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(next.value));
    } else {
      out += text.substr(0, next.size_bytes);
    }
    text.remove_prefix(next.size_bytes);
  }
  out += '"';
}

void append(const Value& value, std::string& out);

void append_items(const std::vector<Value>& items, std::string& out) {
  out += '[';
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i != 0) out += ", ";
    append(items[i], out);
  }
  out += ']';
}

struct Appender {
  std::string& out;

  void operator()(const Value::Null&) const { out += "null"; }
  void operator()(bool value) const { out += value ? "true" : "false"; }
  void operator()(std::int64_t value) const { out += std::to_string(value); }
  void operator()(const Value::BigInt& value) const { out += value.digits; }
  void operator()(double value) const {
    if (std::isnan(value)) {
      out += "null";
    } else if (std::isinf(value)) {
      out += value > 0 ? "\"inf\"" : "\"-inf\"";
    } else {
      out += json_float(fmt::format("{}", value));
    }
  }
  void operator()(const std::string& value) const { append_string(value, out); }
  void operator()(const Value::List& value) const { append_items(value.items, out); }
  void operator()(const Value::Tuple& value) const { append_items(value.items, out); }
  void operator()(const Value::Object& value) const {
    out += '{';
    for (std::size_t i = 0; i < value.members.size(); ++i) {
      if (i != 0) out += ", ";
      append_string(value.members[i].first, out);
      out += ": ";
      append(value.members[i].second, out);
    }
    out += '}';
  }
  void operator()(const Value::Special& value) const;
};

void Appender::operator()(const Value::Special& value) const {
  using enum Value::Special::Type;
  switch (value.type) {
    case complex:
    case set:
    case frozenset:
    case size:
      return append_items(value.items, out);
    case counter:
      return append(value.items.empty() ? Value(Value::Object()) : value.items.front(), out);
    default:
      out += to_json(value);  // strings
  }
}

void append(const Value& value, std::string& out) { std::visit(Appender{out}, value.data()); }

}  // namespace

std::string strict_json(const Value& value) {
  std::string out;
  append(value, out);
  return out;
}

std::string json_float(std::string text) {
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

Value json_number(std::uint64_t number) {
  constexpr auto kGreatest = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (number <= kGreatest) return {static_cast<std::int64_t>(number)};
  return {Value::BigInt{std::to_string(number)}};
}

Value json_list(const std::vector<std::string>& strings) {
  Value::List list;
  for (const std::string& string : strings) list.items.emplace_back(string);
  return {std::move(list)};
}

}  // namespace tenfold::cli

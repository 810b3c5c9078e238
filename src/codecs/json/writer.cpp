#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "codecs/json/json.hpp"
#include "codecs/json/utf8.hpp"

namespace tenfold::codecs {
namespace {

/// Appends Python's repr of a finite double: the shortest digits that round-trip, with an exponent
/// of at least two digits if the magnitude is below 1e-4 (but not 0) or at least 1e16.
void append_finite(std::string& text, double value) {
  std::array<char, 32> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                 std::chars_format::scientific)
                       .ptr;
  std::string_view shortest(buffer.data(), static_cast<std::size_t>(end - buffer.data()));
  if (shortest.front() == '-') {
    text.push_back('-');
    shortest.remove_prefix(1);
  }
  const std::size_t mark = shortest.find('e');
  const std::string_view sign_and_digits = shortest.substr(mark + 1);
  int exponent = 0;
  std::from_chars(sign_and_digits.data() + 1, sign_and_digits.data() + sign_and_digits.size(),
                  exponent);
  if (sign_and_digits.front() == '-') exponent = -exponent;
  if (exponent < -4 || exponent >= 16) {
    text.append(shortest);  // to_chars writes "1e+16" and "1e-05" as Python does
    return;
  }
  std::string digits(1, shortest[0]);
  if (mark > 2) digits.append(shortest.substr(2, mark - 2));
  if (exponent < 0) {
    text.append("0.").append(static_cast<std::size_t>(-exponent - 1), '0').append(digits);
    return;
  }
  const std::size_t whole = static_cast<std::size_t>(exponent) + 1;
  if (digits.size() < whole) digits.append(whole - digits.size(), '0');
  text.append(digits, 0, whole).push_back('.');
  digits.size() > whole ? text.append(digits, whole, std::string::npos) : text.append("0");
}

void append_escape_u(std::string& text, std::uint32_t unit) {
  constexpr std::string_view kHex = "0123456789abcdef";
  text.append("\\u");
  for (const std::uint32_t shift : {12u, 8u, 4u, 0u}) text.push_back(kHex[unit >> shift & 0xF]);
}

/// Returns the letter of the short escape of `c` ('n' for a line feed), or 0 if it has none.
char short_escape(char c) noexcept {
  switch (c) {
    case '"':
      return '"';
    case '\\':
      return '\\';
    case '\n':
      return 'n';
    case '\r':
      return 'r';
    case '\t':
      return 't';
    case '\f':
      return 'f';
    case '\b':
      return 'b';
    default:
      return '\0';
  }
}

void append_ascii(std::string& text, std::uint32_t code_point) {
  if (code_point < 0x10000) return append_escape_u(text, code_point);
  append_escape_u(text, 0xD800 + ((code_point - 0x10000) >> 10));
  append_escape_u(text, 0xDC00 + ((code_point - 0x10000) & 0x3FF));
}

void append_string(std::string& text, std::string_view value, bool ascii) {
  text.push_back('"');
  const char* p = value.data();
  const char* const end = p + value.size();
  while (p != end) {
    const char c = *p;
    if (c >= 0x20 && c < 0x7F && c != '"' && c != '\\') {
      text.push_back(c);
      ++p;
      continue;
    }
    if (const char letter = short_escape(c); letter != '\0') {
      text.push_back('\\');
      text.push_back(letter);
      ++p;
      continue;
    }
    const CodePoint decoded = decode_wtf8(p, end);
    if (decoded.size_bytes == 0) {
      throw base::invalid_argument()
          .part("json: string ", base::quote(value))
          .problem("cannot be encoded")
          .expected("utf-8")
          .found(base::quote({p, 1}), " at byte ", p - value.data());
    }
    // A lone surrogate cannot be encoded in UTF-8, so it is escaped in every style.
    if (ascii || decoded.value < 0x20 || is_surrogate(decoded.value)) {
      append_ascii(text, decoded.value);
    } else {
      text.append(p, decoded.size_bytes);
    }
    p += decoded.size_bytes;
  }
  text.push_back('"');
}

}  // namespace

void JsonWriter::separate() {
  if (need_comma_ && !after_key_) text_.append(style_ == JsonStyle::python ? ", " : ",");
  need_comma_ = true;
  after_key_ = false;
}

void JsonWriter::null() {
  separate();
  text_.append("null");
}

void JsonWriter::boolean(bool value) {
  separate();
  text_.append(value ? "true" : "false");
}

void JsonWriter::integer(std::int64_t value) {
  separate();
  std::array<char, 24> buffer{};
  text_.append(buffer.data(),
               std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr);
}

void JsonWriter::big_integer(std::string_view digits) {
  const std::string_view magnitude = digits.substr(digits.starts_with('-') ? 1 : 0);
  if (magnitude.empty() || !std::ranges::all_of(magnitude, base::is_digit) ||
      (magnitude.front() == '0' && magnitude.size() > 1)) {
    throw base::invalid_argument()
        .part("json: integer ", base::quote(digits))
        .problem("cannot be encoded")
        .expected("decimal digits without leading zeros, after an optional \"-\"")
        .found("other characters");
  }
  separate();
  text_.append(digits);
}

void JsonWriter::number(double value) {
  separate();
  if (std::isnan(value)) {
    text_.append("NaN");
  } else if (std::isinf(value)) {
    text_.append(value < 0 ? "-Infinity" : "Infinity");
  } else {
    append_finite(text_, value);
  }
}

void JsonWriter::string(std::string_view value) {
  separate();
  append_string(text_, value, style_ != JsonStyle::utf8_compact);
}

void JsonWriter::enter(char bracket) {
  if (depth_ == kMaxJsonDepth) {
    throw base::unsupported()
        .problem("nested too deeply")
        .expected("at most ", kMaxJsonDepth, " levels of json")
        .found("more");
  }
  ++depth_;
  separate();
  text_.push_back(bracket);
  need_comma_ = false;
}

void JsonWriter::leave(char bracket) {
  --depth_;
  text_.push_back(bracket);
  need_comma_ = true;
}

void JsonWriter::begin_object() { enter('{'); }

void JsonWriter::key(std::string_view value) {
  separate();
  append_string(text_, value, style_ != JsonStyle::utf8_compact);
  text_.append(style_ == JsonStyle::python ? ": " : ":");
  after_key_ = true;
}

void JsonWriter::end_object() { leave('}'); }

void JsonWriter::begin_array() { enter('['); }

void JsonWriter::end_array() { leave(']'); }

}  // namespace tenfold::codecs

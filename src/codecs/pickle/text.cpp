#include "codecs/pickle/text.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <vector>

#include <fmt/format.h>

#include "base/text.hpp"

namespace tenfold::codecs {
namespace {

constexpr std::uint32_t kBillion = 1'000'000'000;

/// Returns the decimal digits of a non-negative integer, given as 32-bit words, the lowest first.
std::string decimal(std::vector<std::uint32_t> words) {
  std::string digits;
  while (!words.empty()) {
    std::uint64_t rest = 0;
    for (std::size_t i = words.size(); i > 0; --i) {
      const std::uint64_t value = rest << 32U | words[i - 1];
      words[i - 1] = static_cast<std::uint32_t>(value / kBillion);
      rest = value % kBillion;
    }
    while (!words.empty() && words.back() == 0) words.pop_back();
    for (int i = 0; i < 9; ++i, rest /= 10) digits += static_cast<char>('0' + rest % 10);
  }
  while (digits.size() > 1 && digits.back() == '0') digits.pop_back();
  std::reverse(digits.begin(), digits.end());
  return digits;
}

void append_utf8(std::string& text, std::uint32_t code) {
  const auto add = [&](std::uint32_t byte) { text += static_cast<char>(byte); };
  if (code < 0x80) return add(code);
  if (code < 0x800) {
    add(0xC0U | code >> 6U);
  } else {
    if (code < 0x10000) {
      add(0xE0U | code >> 12U);
    } else {
      add(0xF0U | code >> 18U);
      add(0x80U | (code >> 12U & 0x3FU));
    }
    add(0x80U | (code >> 6U & 0x3FU));
  }
  add(0x80U | (code & 0x3FU));
}

/// Parses `count` hexadecimal digits at the start of `text`.
std::optional<std::uint32_t> hexadecimal(std::string_view text, std::size_t count) {
  if (text.size() < count) return std::nullopt;
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + count, value, 16);
  if (error != std::errc() || end != text.data() + count) return std::nullopt;
  return value;
}

/// Decodes an escape sequence. `rest` starts after its backslash. Appends the result to `into` and
/// removes the sequence from `rest`. Returns false if the sequence is invalid.
bool unescape(std::string_view& rest, std::string& into) {
  constexpr std::string_view kLetters = "\\'\"abfnrtv";
  constexpr std::string_view kMeanings = "\\'\"\a\b\f\n\r\t\v";
  if (rest.empty()) return false;
  const char letter = rest.front();
  if (letter == 'x') {
    const auto value = hexadecimal(rest.substr(1), 2);
    if (!value) return false;
    into += static_cast<char>(*value);
    rest.remove_prefix(3);
    return true;
  }
  if (letter >= '0' && letter <= '7') {
    std::uint32_t value = 0;
    for (int i = 0; i < 3 && !rest.empty() && rest.front() >= '0' && rest.front() <= '7'; ++i) {
      value = value * 8 + static_cast<std::uint32_t>(rest.front() - '0');
      rest.remove_prefix(1);
    }
    into += static_cast<char>(value & 0xFFU);
    return true;
  }
  const std::size_t at = kLetters.find(letter);
  if (at == std::string_view::npos) {
    into += '\\';  // Python keeps unknown escapes as they are
    into += letter;
  } else {
    into += kMeanings[at];
  }
  rest.remove_prefix(1);
  return true;
}

}  // namespace

PickleInteger pickle_integer(std::string_view bytes) {
  const bool negative = !bytes.empty() && (static_cast<unsigned char>(bytes.back()) & 0x80U) != 0;
  if (bytes.size() <= 8) {
    std::uint64_t value = negative ? ~std::uint64_t{0} : 0;
    for (std::size_t i = bytes.size(); i > 0; --i) {
      value = value << 8U | static_cast<unsigned char>(bytes[i - 1]);
    }
    return {static_cast<std::int64_t>(value), {}};
  }
  // The magnitude of a negative number is the two's complement of its bytes.
  std::vector<std::uint32_t> words((bytes.size() + 3) / 4);
  std::uint32_t carry = negative ? 1 : 0;
  for (std::size_t i = 0; i < words.size() * 4; ++i) {
    std::uint32_t byte =
        i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : (negative ? 0xFFU : 0U);
    if (negative) {
      byte = (byte ^ 0xFFU) + carry;
      carry = byte >> 8U;
      byte &= 0xFFU;
    }
    words[i / 4] |= byte << (8 * (i % 4));
  }
  const std::string digits = decimal(std::move(words));
  return *pickle_decimal((negative ? "-" : "") + (digits.empty() ? "0" : digits));
}

std::optional<PickleInteger> pickle_decimal(std::string_view text) {
  const bool negative = text.starts_with('-');
  std::string_view digits = text;
  if (negative || digits.starts_with('+')) digits.remove_prefix(1);
  if (digits.empty() || digits.find_first_not_of("0123456789") != std::string_view::npos) {
    return std::nullopt;
  }
  digits.remove_prefix(std::min(digits.find_first_not_of('0'), digits.size() - 1));
  const std::string normal = (negative ? "-" : "") + std::string(digits);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(normal.data(), normal.data() + normal.size(), value);
  if (error == std::errc() && end == normal.data() + normal.size()) return PickleInteger{value, {}};
  return PickleInteger{std::nullopt, normal};
}

std::optional<double> pickle_float(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

std::optional<std::string> pickle_quoted(std::string_view text) {
  if (text.size() < 2 || (text.front() != '\'' && text.front() != '"') ||
      text.back() != text.front()) {
    return std::nullopt;
  }
  text = text.substr(1, text.size() - 2);
  std::string value;
  value.reserve(text.size());
  while (!text.empty()) {
    const char next = text.front();
    text.remove_prefix(1);
    if (next != '\\') {
      value += next;
    } else if (!unescape(text, value)) {
      return std::nullopt;
    }
  }
  return value;
}

std::optional<std::string> pickle_raw_unicode(std::string_view text) {
  std::string value;
  value.reserve(text.size());
  while (!text.empty()) {
    const bool escape = text.size() > 1 && text[0] == '\\' && (text[1] == 'u' || text[1] == 'U');
    if (!escape) {
      // A backslash that does not start an escape is literal. If a second one follows it directly,
      // that is literal too, even before a "u".
      const std::size_t count = text.starts_with("\\\\") ? 2 : 1;
      for (std::size_t i = 0; i < count; ++i) {
        append_utf8(value, static_cast<unsigned char>(text[i]));
      }
      text.remove_prefix(count);
      continue;
    }
    const std::size_t digits = text[1] == 'u' ? 4 : 8;
    const auto code = hexadecimal(text.substr(2), digits);
    if (!code || *code > 0x10FFFF) return std::nullopt;
    append_utf8(value, *code);
    text.remove_prefix(2 + digits);
  }
  return value;
}

bool is_pickle_text(std::string_view text) noexcept {
  // All bytes outside the surrogates (ED A0..BF 80..BF) must be valid UTF-8, in which the byte
  // after ED is always below A0.
  std::size_t begin = 0;
  for (std::size_t at = text.find('\xED'); at != std::string_view::npos;
       at = text.find('\xED', at + 1)) {
    if (at + 3 > text.size() || static_cast<unsigned char>(text[at + 1]) < 0xA0) continue;
    const auto tail = [&](std::size_t i) {
      return (static_cast<unsigned char>(text[i]) & 0xC0U) == 0x80;
    };
    if (!tail(at + 1) || !tail(at + 2) || !base::is_utf8(text.substr(begin, at - begin)))
      return false;
    begin = at + 3;
  }
  return base::is_utf8(text.substr(begin));
}

}  // namespace tenfold::codecs

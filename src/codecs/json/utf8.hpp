#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tenfold::codecs {

/// A decoded code point and its size in bytes; `size_bytes` is 0 if the bytes are not WTF-8.
struct CodePoint {
  std::uint32_t value = 0;
  std::size_t size_bytes = 0;
};

/// True for surrogates, the halves of UTF-16 pairs. UTF-8 excludes them; WTF-8 encodes them in
/// three bytes.
constexpr bool is_surrogate(std::uint32_t code_point) noexcept {
  return code_point >= 0xD800 && code_point <= 0xDFFF;
}

/// Decodes the code point at `text` as WTF-8: UTF-8 or a surrogate. [text, end) must not be empty.
/// Returns size_bytes 0 for other bytes, such as overlong forms, values above U+10FFFF and
/// truncated sequences.
inline CodePoint decode_wtf8(const char* text, const char* end) noexcept {
  const auto byte = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const std::uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xC2 || lead > 0xF4) return {};
  const std::size_t size = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (static_cast<std::size_t>(end - text) < size) return {};
  std::uint32_t value = lead & (0x7Fu >> size);
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {};
    value = value << 6 | (byte(i) & 0x3Fu);
  }
  const std::uint32_t least = size == 2 ? 0x80 : size == 3 ? 0x800 : 0x10000;
  if (value < least || value > 0x10FFFF) return {};
  return {value, size};
}

/// Appends the code point, which is at most U+10FFFF, as WTF-8.
inline void append_wtf8(std::string& text, std::uint32_t value) {
  const auto push = [&text](std::uint32_t byte) { text.push_back(static_cast<char>(byte)); };
  const auto push_tail = [&](std::uint32_t shift) { push(0x80 | (value >> shift & 0x3F)); };
  if (value < 0x80) {
    push(value);
  } else if (value < 0x800) {
    push(0xC0 | value >> 6);
    push_tail(0);
  } else if (value < 0x10000) {
    push(0xE0 | value >> 12);
    push_tail(6);
    push_tail(0);
  } else {
    push(0xF0 | value >> 18);
    push_tail(12);
    push_tail(6);
    push_tail(0);
  }
}

}  // namespace tenfold::codecs

#include "text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace tenfold::cli {
namespace {

constexpr std::string_view kEllipsis = "…";

std::size_t columns(const CodePoint& point) noexcept {
  const std::uint32_t c = point.value;
  if (c >= 0x300 && c <= 0x36f) return 0;  // combining accents
  if (c == 0x200d || (c >= 0xfe00 && c <= 0xfe0f)) return 0;
  const bool wide = (c >= 0x1100 && c <= 0x115f) || (c >= 0x2e80 && c <= 0xa4cf) ||
                    (c >= 0xac00 && c <= 0xd7a3) || (c >= 0xf900 && c <= 0xfaff) ||
                    (c >= 0xfe30 && c <= 0xfe6f) || (c >= 0xff00 && c <= 0xff60) ||
                    (c >= 0xffe0 && c <= 0xffe6) || (c >= 0x1f300 && c <= 0x1faff) ||
                    (c >= 0x20000 && c <= 0x3fffd);
  return wide ? 2 : 1;
}

/// True for characters that are invisible or that reverse or hide text, so that one key could look
/// like another: bidirectional controls and the Default_Ignorable_Code_Point characters of Unicode.
bool is_invisible(std::uint32_t c) noexcept {
  return c == 0xad || c == 0x34f || c == 0x61c || c == 0x115f || c == 0x1160 || c == 0x17b4 ||
         c == 0x17b5 || (c >= 0x180b && c <= 0x180f) || (c >= 0x200b && c <= 0x200f) ||
         (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) || c == 0x3164 ||
         (c >= 0xfe00 && c <= 0xfe0f) || c == 0xfeff || c == 0xffa0 ||
         (c >= 0xfff0 && c <= 0xfffb) || (c >= 0x1bca0 && c <= 0x1bca3) ||
         (c >= 0x1d173 && c <= 0x1d17a) || (c >= 0xe0000 && c <= 0xe0fff);
}

/// Length in bytes of the longest prefix of `text` that fits `width` columns.
std::size_t fitting_bytes(std::string_view text, std::size_t width) noexcept {
  std::size_t used = 0;
  std::size_t at = 0;
  while (at < text.size()) {
    const CodePoint next = first_code_point(text.substr(at));
    used += columns(next);
    if (used > width) break;
    at += next.size_bytes;
  }
  return at;
}

}  // namespace

CodePoint first_code_point(std::string_view text) noexcept {
  const auto byte = [&](std::size_t i) {
    return static_cast<std::uint32_t>(static_cast<unsigned char>(text[i]));
  };
  const std::uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1, true};
  const std::size_t size = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < size) return {lead, 1, false};
  std::uint32_t value = lead & (0x7fU >> size);
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {lead, 1, false};
    value = (value << 6) | (byte(i) & 0x3f);
  }
  const bool overlong = (size == 3 && value < 0x800) || (size == 4 && value < 0x10000);
  const bool surrogate = value >= 0xd800 && value <= 0xdfff;
  if (overlong || surrogate || value > 0x10ffff) return {lead, 1, false};
  return {value, size, true};
}

bool is_control(std::uint32_t c) noexcept { return c < 0x20 || (c >= 0x7f && c < 0xa0); }

std::string printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const CodePoint next = first_code_point(text);
    if (!next.valid || is_control(next.value)) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned>(next.value));
    } else if (is_invisible(next.value)) {
      out += next.value > 0xffff ? fmt::format("\\U{:08x}", static_cast<unsigned>(next.value))
                                 : fmt::format("\\u{:04x}", static_cast<unsigned>(next.value));
    } else {
      out += text.substr(0, next.size_bytes);
    }
    text.remove_prefix(next.size_bytes);
  }
  return out;
}

std::size_t width_of(std::string_view text) noexcept {
  std::size_t width = 0;
  while (!text.empty()) {
    const CodePoint next = first_code_point(text);
    width += columns(next);
    text.remove_prefix(next.size_bytes);
  }
  return width;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> least(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        least[i][j] = i + j;
        continue;
      }
      const std::size_t replace = a[i - 1] == b[j - 1] ? 0 : 1;
      least[i][j] =
          std::min({least[i - 1][j] + 1, least[i][j - 1] + 1, least[i - 1][j - 1] + replace});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        least[i][j] = std::min(least[i][j], least[i - 2][j - 2] + 1);
      }
    }
  }
  return least[a.size()][b.size()];
}

std::string cut_end(std::string_view text, std::size_t width) {
  if (width_of(text) <= width) return std::string(text);
  if (width == 0) return {};
  return std::string(text.substr(0, fitting_bytes(text, width - 1))) + std::string(kEllipsis);
}

std::string cut_middle(std::string_view text, std::size_t width) {
  const std::size_t total = width_of(text);
  if (total <= width) return std::string(text);
  if (width < 4) return cut_end(text, width);
  const std::size_t head = (width - 1) / 2;
  const std::size_t tail = width - 1 - head;
  const std::size_t head_bytes = fitting_bytes(text, head);
  std::size_t tail_begin = fitting_bytes(text, total - tail);
  // Omit a wide character of which only the second column is in the tail.
  while (width_of(text.substr(tail_begin)) > tail) {
    tail_begin += first_code_point(text.substr(tail_begin)).size_bytes;
  }
  return std::string(text.substr(0, head_bytes)) + std::string(kEllipsis) +
         std::string(text.substr(tail_begin));
}

}  // namespace tenfold::cli

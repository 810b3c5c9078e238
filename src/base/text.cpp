#include "base/text.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <utility>

namespace tenfold::base {
namespace {

/// Size in bytes of the well-formed UTF-8 character at `at`, or 0 if there is none (Unicode 15,
/// table 3-7).
std::size_t utf8_size(std::string_view text, std::size_t at) noexcept {
  const auto byte = [&](std::size_t i) -> unsigned {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0U;
  };
  const auto continues = [&](std::size_t i) { return (byte(i) & 0xC0U) == 0x80U; };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return continues(1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    const unsigned low = lead == 0xE0 ? 0xA0U : 0x80U;   // no overlong forms
    const unsigned high = lead == 0xED ? 0x9FU : 0xBFU;  // no surrogates
    return byte(1) >= low && byte(1) <= high && continues(2) ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    const unsigned low = lead == 0xF0 ? 0x90U : 0x80U;
    const unsigned high = lead == 0xF4 ? 0x8FU : 0xBFU;  // nothing above U+10FFFF
    return byte(1) >= low && byte(1) <= high && continues(2) && continues(3) ? 4 : 0;
  }
  return 0;
}

void append_escaped(std::string& out, char byte) {
  static constexpr char kDigits[] = "0123456789abcdef";
  const auto value = static_cast<unsigned char>(byte);
  out += "\\x";
  out += kDigits[value >> 4];
  out += kDigits[value & 15];
}

/// True for invalid bytes (size 0) and control characters. The C1 controls (U+0080 to U+009F) are
/// two bytes in UTF-8, and some terminals execute them.
bool needs_escape(std::string_view text, std::size_t at, std::size_t size) noexcept {
  const auto lead = static_cast<unsigned char>(text[at]);
  if (size == 0) return true;
  if (size == 1) return lead < 0x20 || lead == 0x7F;
  return lead == 0xC2 && static_cast<unsigned char>(text[at + 1]) < 0xA0;
}

/// Edit distance (insert, delete, replace, swap of neighbours), or any number greater than `limit`
/// if the distance exceeds `limit`. Each edit counts 2, but a difference in case alone counts 1.
/// Subtracts the number of compared pairs of characters from `budget`; if `budget` is too small for
/// that, also returns a number greater than `limit`.
std::size_t edit_distance(std::string_view a, std::string_view b, std::size_t limit,
                          std::size_t& budget) {
  const std::size_t longer = std::max(a.size(), b.size());
  const std::size_t shorter = std::min(a.size(), b.size());
  if ((longer - shorter) * 2 > limit) return limit + 1;
  // Keys of one tree share long prefixes and suffixes. Skipping them does not change the distance.
  const auto head = static_cast<std::size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(shorter), b.begin()).first -
      a.begin());
  a.remove_prefix(head);
  b.remove_prefix(head);
  while (!a.empty() && !b.empty() && a.back() == b.back()) {
    a.remove_suffix(1);
    b.remove_suffix(1);
  }
  std::vector<std::size_t> before_last(b.size() + 1);
  std::vector<std::size_t> last(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = 2 * j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    if (b.size() > budget) return limit + 1;
    budget -= b.size();
    row[0] = 2 * i;
    std::size_t least = row[0];
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const char x = a[i - 1];
      const char y = b[j - 1];
      const std::size_t replace = x == y ? 0U : to_lower(x) == to_lower(y) ? 1U : 2U;
      row[j] = std::min({last[j - 1] + replace, last[j] + 2, row[j - 1] + 2});
      if (i > 1 && j > 1 && x == b[j - 2] && a[i - 2] == y) {
        row[j] = std::min(row[j], before_last[j - 2] + 2);
      }
      least = std::min(least, row[j]);
    }
    if (least > limit) return limit + 1;
    std::swap(before_last, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

/// True if `tail` equals the last dotted components of `whole`, but not all of them: "weight" and
/// "encoder.weight".
bool is_dotted_tail(std::string_view tail, std::string_view whole) noexcept {
  return tail.size() + 1 < whole.size() && whole.ends_with(tail) &&
         whole[whole.size() - tail.size() - 1] == '.';
}

}  // namespace

std::string quote(std::string_view text, std::size_t max_bytes) {
  std::string out = "\"";
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t size = utf8_size(text, at);
    const std::size_t step = std::max<std::size_t>(size, 1);
    if (at + step > max_bytes) break;
    if (text[at] == '"' || text[at] == '\\') {
      out += {'\\', text[at]};
    } else if (needs_escape(text, at, size)) {
      for (std::size_t i = 0; i < step; ++i) append_escaped(out, text[at + i]);
    } else {
      out.append(text, at, step);
    }
    at += step;
  }
  out += at < text.size() ? "...\"" : "\"";
  return out;
}

std::string list_text(std::span<const std::int64_t> values) {
  std::string out = "[";
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i > 0) out += ", ";
    out += std::to_string(values[i]);
  }
  return out += "]";
}

bool is_utf8(std::string_view text) noexcept {
  for (std::size_t at = 0; at < text.size();) {
    // Eight ASCII characters at once: 0.7 GB/s without this, several GB/s with it.
    if (std::uint64_t eight = 0; text.size() - at >= sizeof eight) {
      std::memcpy(&eight, text.data() + at, sizeof eight);
      if ((eight & 0x8080808080808080U) == 0) {
        at += sizeof eight;
        continue;
      }
    }
    const std::size_t size = utf8_size(text, at);
    if (size == 0) return false;
    at += size;
  }
  return true;
}

std::vector<std::string> near_matches(std::string_view wanted,
                                      std::span<const std::string> candidates, std::size_t count) {
  // Nobody types longer keys by hand, and a long hostile key must not cost quadratic time.
  constexpr std::size_t kMaxBytes = 256;
  if (wanted.empty() || wanted.size() > kMaxBytes) return {};
  const std::size_t limit = 2 * std::clamp<std::size_t>(wanted.size() / 3, 1, 8);
  // Number of pairs of characters that are compared in a tenth of a second. Needed because a file
  // may have 400,000 long keys.
  std::size_t budget = 50'000'000;
  std::vector<std::pair<std::size_t, std::size_t>> found;  // distance, position
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const std::string& candidate = candidates[i];
    if (candidate == wanted) continue;
    std::size_t distance = edit_distance(wanted, candidate, limit, budget);
    if (is_dotted_tail(wanted, candidate) || is_dotted_tail(candidate, wanted)) {
      distance = std::min(distance, limit);
    }
    if (distance <= limit) found.emplace_back(distance, i);
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> names;
  for (const auto& [distance, position] : found) {
    if (names.size() == count) break;
    names.push_back(candidates[position]);
  }
  return names;
}

std::string did_you_mean(std::string_view wanted, std::span<const std::string> candidates,
                         std::size_t count) {
  const std::vector<std::string> near = near_matches(wanted, candidates, count);
  std::string text;
  for (std::size_t i = 0; i < near.size(); ++i) {
    text += i == 0 ? "did you mean " : i + 1 == near.size() ? " or " : ", ";
    text += quote(near[i]);
  }
  return near.empty() ? text : text + "?";
}

std::string human_bytes(std::uint64_t size_bytes) {
  if (size_bytes < 10'000) {
    std::string digits = std::to_string(size_bytes);
    if (digits.size() > 3) digits.insert(digits.size() - 3, ",");
    return digits + (size_bytes == 1 ? " byte" : " bytes");
  }
  static constexpr std::array kUnits = {" kB", " MB", " GB", " TB", " PB", " EB"};
  std::uint64_t unit_bytes = 1000;
  std::size_t unit = 0;
  // 999,950 would round to "1000.0", so switch to the next unit.
  while (unit + 1 < kUnits.size() && size_bytes >= unit_bytes * 1000 - unit_bytes / 20) {
    unit_bytes *= 1000;
    ++unit;
  }
  const std::uint64_t whole = size_bytes / unit_bytes;
  std::uint64_t tenths = (size_bytes % unit_bytes * 10 + unit_bytes / 2) / unit_bytes;
  return std::to_string(whole + tenths / 10) + "." + std::to_string(tenths % 10) + kUnits[unit];
}

}  // namespace tenfold::base

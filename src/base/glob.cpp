#include "base/glob.hpp"

#include <cstddef>
#include <cstdint>

namespace tenfold::base {
namespace {

struct Character {
  std::uint32_t code = 0;
  std::size_t size_bytes = 0;
};

/// Added to the value of a byte that begins no UTF-8 sequence. The sum differs from every code
/// point.
constexpr std::uint32_t kInvalidByte = 0x8000'0000;

/// The UTF-8 character at `at`. A byte that begins no sequence counts as one character. Does not
/// check for overlong forms, surrogates and code points above U+10FFFF.
Character character_at(std::string_view text, std::size_t at) noexcept {
  const auto byte = [&](std::size_t i) -> std::uint32_t {
    return static_cast<unsigned char>(text[i]);
  };
  const std::uint32_t lead = byte(at);
  const std::size_t size = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
  if (lead < 0x80) return {lead, 1};
  if (size == 1 || at + size > text.size()) return {kInvalidByte + lead, 1};
  std::uint32_t code = lead & (0xFFU >> (size + 1));
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) return {kInvalidByte + lead, 1};
    code = code << 6 | (byte(at + i) & 0x3F);
  }
  return {code, size};
}

/// The result of comparing a pattern element other than `*` with one character.
struct Step {
  bool matches = false;
  std::size_t pattern_bytes = 0;  ///< size of the pattern element
};

/// Compares the class `[...]` at `at` with a character. pattern_bytes is 0 if the class is never
/// closed.
Step match_class(std::string_view pattern, std::size_t at, std::uint32_t code) noexcept {
  std::size_t i = at + 1;
  const bool negated = i < pattern.size() && pattern[i] == '!';
  if (negated) ++i;
  bool found = false;
  // A `]` right after the opening bracket, or after its `!`, is a literal.
  for (bool first = true; i < pattern.size() && (first || pattern[i] != ']'); first = false) {
    const Character low = character_at(pattern, i);
    i += low.size_bytes;
    std::uint32_t high_code = low.code;
    if (i + 1 < pattern.size() && pattern[i] == '-' && pattern[i + 1] != ']') {
      const Character high = character_at(pattern, i + 1);
      high_code = high.code;
      i += 1 + high.size_bytes;
    }
    found = found || (low.code <= code && code <= high_code);
  }
  if (i >= pattern.size()) return {};
  return {found != negated, i + 1 - at};
}

/// A pattern, and the position of its last `]`: a `[` after that `]` is a literal. Without the
/// position, each such `[` would cost a scan to the end of the pattern, for every character of the
/// string.
struct Pattern {
  std::string_view text;
  std::size_t last_close;

  explicit Pattern(std::string_view of) noexcept : text(of), last_close(of.rfind(']')) {}
};

Step match_one(const Pattern& of, std::size_t at, std::uint32_t code) noexcept {
  const std::string_view pattern = of.text;
  if (pattern[at] == '?') return {true, 1};
  if (pattern[at] == '[' && of.last_close != std::string_view::npos && at < of.last_close) {
    if (const Step step = match_class(pattern, at, code); step.pattern_bytes != 0) return step;
  }
  const Character wanted = character_at(pattern, at);
  return {wanted.code == code, wanted.size_bytes};
}

}  // namespace

bool glob_match(std::string_view pattern, std::string_view text) noexcept {
  constexpr std::size_t kNone = std::string_view::npos;
  const Pattern parsed(pattern);
  std::size_t p = 0;
  std::size_t t = 0;
  // Backtracking to the last star is enough, because the pattern before that star has matched the
  // shortest possible part of the string.
  std::size_t star = kNone;
  std::size_t star_end = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_end = t;
      continue;
    }
    const Character character = character_at(text, t);
    if (p < pattern.size()) {
      if (const Step step = match_one(parsed, p, character.code); step.matches) {
        p += step.pattern_bytes;
        t += character.size_bytes;
        continue;
      }
    }
    if (star == kNone) return false;
    star_end += character_at(text, star_end).size_bytes;
    t = star_end;
    p = star + 1;
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

bool glob_may_match_below(std::string_view pattern, std::string_view prefix) noexcept {
  const Pattern parsed(pattern);
  std::size_t p = 0;
  for (std::size_t t = 0; t < prefix.size();) {
    if (p == pattern.size()) return false;
    if (pattern[p] == '*') return true;
    const Character character = character_at(prefix, t);
    const Step step = match_one(parsed, p, character.code);
    if (!step.matches) return false;
    p += step.pattern_bytes;
    t += character.size_bytes;
  }
  return true;
}

bool is_glob(std::string_view pattern) noexcept {
  return pattern.find_first_of("*?[") != std::string_view::npos;
}

}  // namespace tenfold::base

#include "ingest/text/json_text.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "base/text.hpp"
#include "codecs/json/json.hpp"
#include "codecs/json/utf8.hpp"
#include "ingest/number_text.hpp"
#include "ingest/text/source_files.hpp"

namespace tenfold {
namespace {

/// The argument of fail() for a string that is not UTF-8.
constexpr const char* kUtf8 = "UTF-8 in a string";

/// Finds the first '"', '\\' or control character at or after `at`. Sets `beyond_ascii` if there
/// are non-ASCII bytes before it.
const char* end_of_plain(const char* at, bool& beyond_ascii) noexcept {
#if defined(__SSE2__)
  const __m128i quote = _mm_set1_epi8('"');
  const __m128i backslash = _mm_set1_epi8('\\');
  const __m128i last_control = _mm_set1_epi8(0x1F);
  while (true) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
    const __m128i found =
        _mm_or_si128(_mm_or_si128(_mm_cmpeq_epi8(bytes, quote), _mm_cmpeq_epi8(bytes, backslash)),
                     _mm_cmpeq_epi8(_mm_min_epu8(bytes, last_control), bytes));
    const auto stops = static_cast<std::uint32_t>(_mm_movemask_epi8(found));
    const auto high = static_cast<std::uint32_t>(_mm_movemask_epi8(bytes));
    if (stops != 0) {
      const int count = std::countr_zero(stops);
      beyond_ascii |= (high & ((1U << count) - 1)) != 0;
      return at + count;
    }
    beyond_ascii |= high != 0;
    at += sizeof(__m128i);
  }
#else
  while (true) {
    const auto byte = static_cast<unsigned char>(*at);
    if (byte == '"' || byte == '\\' || byte < 0x20) return at;
    beyond_ascii |= byte >= 0x80;
    ++at;
  }
#endif
}

int hex_digit(char c) noexcept {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/// Parses the four hexadecimal digits at `at`, or returns -1.
std::int32_t hex4(const char* at) noexcept {
  std::int32_t value = 0;
  for (int i = 0; i < 4; ++i) {
    const int digit = hex_digit(at[i]);
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

constexpr std::int32_t kHighSurrogates = 0xD800;
constexpr std::int32_t kLowSurrogates = 0xDC00;
constexpr std::int32_t kAfterSurrogates = 0xE000;

}  // namespace

const char* JsonText::end_of_string(bool& has_escapes) noexcept {
  bool beyond_ascii = false;
  const char* at = at_ + 1;
  while (true) {
    at = end_of_plain(at, beyond_ascii);
    if (*at != '\\') break;
    has_escapes = true;
    // The escape is validated when it is decoded; an escaped quote does not end the string.
    at += static_cast<unsigned char>(at[1]) < 0x20 ? 1 : 2;
  }
  if (*at != '"' || at >= end_) {
    at_ = std::min(at, end_);
    fail(at >= end_ ? "the end of a string" : "no control character in a string");
    return nullptr;
  }
  if (beyond_ascii && !base::is_utf8({at_ + 1, static_cast<std::size_t>(at - at_ - 1)})) {
    fail(kUtf8);
    return nullptr;
  }
  return at + 1;
}

bool JsonText::decode(const char* from, const char* to, std::string& into) {
  while (from < to) {
    const char* const escape = std::find(from, to, '\\');
    into.append(from, escape);
    if (escape == to) return true;
    from = escape + 2;
    switch (escape[1]) {
      case '"':
      case '\\':
      case '/':
        into.push_back(escape[1]);
        break;
      case 'b':
        into.push_back('\b');
        break;
      case 'f':
        into.push_back('\f');
        break;
      case 'n':
        into.push_back('\n');
        break;
      case 'r':
        into.push_back('\r');
        break;
      case 't':
        into.push_back('\t');
        break;
      case 'u': {
        std::int32_t code = hex4(from);
        if (code < 0) {
          at_ = escape;
          return fail("four hexadecimal digits after \\u");
        }
        from += 4;
        if (code >= kHighSurrogates && code < kAfterSurrogates) {
          const std::int32_t low = from[0] == '\\' && from[1] == 'u' ? hex4(from + 2) : -1;
          if (code >= kLowSurrogates || low < kLowSurrogates || low >= kAfterSurrogates) {
            at_ = escape;
            return fail("a pair of surrogates");
          }
          from += 6;
          code = 0x10000 + ((code - kHighSurrogates) << 10) + (low - kLowSurrogates);
        }
        codecs::append_wtf8(into, static_cast<std::uint32_t>(code));
        break;
      }
      default:
        at_ = escape;
        return fail("an escape of JSON");
    }
  }
  return true;
}

bool JsonText::take_string(std::string_view& text, std::string& scratch) {
  bool has_escapes = false;
  const char* const end = end_of_string(has_escapes);
  if (end == nullptr) return false;
  const char* const begin = at_ + 1;
  if (!has_escapes) {
    text = {begin, static_cast<std::size_t>(end - 1 - begin)};
  } else {
    scratch.clear();
    if (!decode(begin, end - 1, scratch)) return false;
    text = scratch;
  }
  at_ = end;
  return true;
}

bool JsonText::skip_string() {
  bool has_escapes = false;
  const char* const end = end_of_string(has_escapes);
  if (end == nullptr) return false;
  if (has_escapes) {
    std::string scratch;
    if (!decode(at_ + 1, end - 1, scratch)) return false;
  }
  at_ = end;
  return true;
}

bool JsonText::skip_key() {
  bool has_escapes = false;
  const char* const begin = at_ + 1;
  const char* const end = end_of_string(has_escapes);
  if (end == nullptr) return false;
  if (has_escapes) {
    decoded_.emplace_back();
    if (!decode(begin, end - 1, decoded_.back())) return false;
    keys_.push_back(decoded_.back());
  } else {
    keys_.emplace_back(begin, static_cast<std::size_t>(end - 1 - begin));
  }
  at_ = end;
  return true;
}

/// Removes the keys from index `first` on. Records an error and returns false if there were
/// duplicates among them. Called after the end of their object.
bool JsonText::check_keys(std::size_t first) {
  const auto begin = keys_.begin() + static_cast<std::ptrdiff_t>(first);
  constexpr std::ptrdiff_t kFew = 16;
  auto twin = keys_.end();
  if (keys_.end() - begin <= kFew) {
    for (auto key = begin; key != keys_.end() && twin == keys_.end(); ++key) {
      if (std::find(begin, key, *key) != key) twin = key;
    }
  } else {
    std::sort(begin, keys_.end());
    twin = std::adjacent_find(begin, keys_.end());
  }
  const bool are_unique = twin == keys_.end();
  if (!are_unique && fault_ == nullptr) duplicate_ = *twin;
  keys_.resize(first);
  if (first == 0) decoded_.clear();
  return are_unique || fail("distinct keys");
}

bool JsonText::skip_object(std::size_t depth) {
  ++at_;
  if (take('}')) return true;
  const std::size_t first = keys_.size();
  do {
    skip_blanks();
    if (*at_ != '"') return fail("a key in quotes");
    if (!skip_key()) return false;
    if (!take(':')) return fail("':' after a key");
    if (!skip_value(depth + 1)) return false;
  } while (take(','));
  return (take('}') || fail("',' or '}'")) && check_keys(first);
}

bool JsonText::skip_array(std::size_t depth) {
  ++at_;
  if (take(']')) return true;
  do {
    if (!skip_value(depth + 1)) return false;
  } while (take(','));
  return take(']') || fail("',' or ']'");
}

bool JsonText::skip_value(std::size_t depth) {
  if (depth == 0) {  // left over from an invalid value
    keys_.clear();
    decoded_.clear();
  }
  if (depth > codecs::kMaxJsonDepth) return fail("values nested less deeply");
  skip_blanks();
  switch (*at_) {
    case '{':
      return skip_object(depth);
    case '[':
      return skip_array(depth);
    case '"':
      return skip_string();
    case 't':
      return take_word("true") || fail("a value");
    case 'f':
      return take_word("false") || fail("a value");
    case 'n':
      return take_word("null") || fail("a value");
    case 'N':
      return take_word("NaN") || fail("a value");
    case 'I':
      return take_word("Infinity") || fail("a value");
    default:
      break;
  }
  NumberText number;
  if (scan_number(at_, NumberStyle::json, number)) {
    at_ = number.end;
    return true;
  }
  return take_word("-Infinity") || fail("a value");
}

std::string JsonText::fault() const {
  if (fault_ == nullptr) return {};
  constexpr std::size_t kShown = 20;
  if (duplicate_) {
    return "the key " + base::quote(*duplicate_, kShown) +
           " is duplicated in the object that ends at byte " + std::to_string(fault_at_ - begin_) +
           ": expected it once";
  }
  std::string found = "the end of the record";
  if (fault_at_ < end_) {
    const std::string_view rest(fault_at_, static_cast<std::size_t>(end_ - fault_at_));
    found = base::quote(rest, kShown);
  }
  return std::string("expected ") + fault_ + ", found " + found + " at byte " +
         std::to_string(fault_at_ - begin_ + 1) +
         (fault_ == kUtf8 ? "; " + std::string(kConvertToUtf8) : "");
}

}  // namespace tenfold

#include "codecs/json/json.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "codecs/json/utf8.hpp"

// Hand-written because no available library accepts Python's dialect of JSON, which keeps escapes
// of lone surrogates, reads 1e999 as infinity, reads integers of any size, and refuses "Inf". If a
// string contains no escapes, the parser passes it to the handler without a copy. This makes the
// parser several times as fast as a general SAX reader.

namespace tenfold::codecs {
namespace {

constexpr std::uint64_t kOnes = 0x0101010101010101;
constexpr std::uint64_t kHighs = 0x8080808080808080;

/// Sets the high bit of each byte of `word` that equals `byte`, and possibly of bytes more
/// significant than the first match.
constexpr std::uint64_t equal_bytes(std::uint64_t word, unsigned char byte) noexcept {
  const std::uint64_t difference = word ^ (kOnes * byte);
  return (difference - kOnes) & ~difference & kHighs;
}

constexpr bool is_plain(char c) noexcept {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x20 && byte < 0x80 && c != '"' && c != '\\';
}

/// Returns a pointer to the first byte in [p, end) that needs processing (a quote, a backslash, a
/// control character, or a non-ASCII byte), or `end` if there is none.
const char* skip_plain(const char* p, const char* end) noexcept {
  while (end - p >= 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, p, sizeof word);
    const std::uint64_t special = equal_bytes(word, '"') | equal_bytes(word, '\\') |
                                  ((word - kOnes * 0x20) & ~word & kHighs) | (word & kHighs);
    if (special != 0) {
      if constexpr (std::endian::native == std::endian::little) {
        return p + std::countr_zero(special) / 8;
      }
      break;
    }
    p += 8;
  }
  while (p != end && is_plain(*p)) ++p;
  return p;
}

using base::is_digit;

/// The value of a number that from_chars reports as out of range: as in Python, infinity if its
/// magnitude is too large, zero if it is too small.
double out_of_range_value(std::string_view number) noexcept {
  const bool negative = number.front() == '-';
  if (negative) number.remove_prefix(1);
  const std::size_t exponent_at = number.find_first_of("eE");
  std::string_view mantissa = number.substr(0, exponent_at);
  bool exponent_negative = false;
  std::int64_t exponent = 0;
  if (exponent_at != std::string_view::npos) {
    std::string_view digits = number.substr(exponent_at + 1);
    exponent_negative = digits.front() == '-';
    if (exponent_negative || digits.front() == '+') digits.remove_prefix(1);
    constexpr std::int64_t kMaxMagnitude = std::int64_t{1} << 60;
    for (const char c : digits) {
      if (exponent < kMaxMagnitude / 10) exponent = exponent * 10 + (c - '0');
    }
    if (exponent_negative) exponent = -exponent;
  }
  // Make the exponent relative to the first nonzero digit, which may be after the decimal point.
  const std::size_t point = std::min(mantissa.find('.'), mantissa.size());
  const std::size_t first = mantissa.find_first_of("123456789");
  if (first == std::string_view::npos) return negative ? -0.0 : 0.0;
  exponent += static_cast<std::int64_t>(point) - static_cast<std::int64_t>(first);
  const double value = exponent > 0 ? std::numeric_limits<double>::infinity() : 0.0;
  return negative ? -value : value;
}

/// The state of one parse. Open containers are on an explicit stack, so the parser never recurses.
class Parser {
 public:
  Parser(std::string_view text, const base::Where& where, JsonHandler& handler)
      : begin_(text.data()),
        p_(begin_),
        end_(begin_ + text.size()),
        where_(where),
        handler_(handler) {}

  void parse() {
    check_encoding();
    for (;;) {
      if (value()) continue;
      for (;;) {
        skip_whitespace();
        if (depth_ == 0) {
          if (p_ != end_) fail("the end of the text");
          return;
        }
        if (after_item()) break;
      }
    }
  }

 private:
  enum class Container : std::uint8_t { object, array };

  char peek() const noexcept { return p_ == end_ ? '\0' : *p_; }

  void skip_whitespace() noexcept {
    while (p_ != end_ && (*p_ == ' ' || *p_ == '\n' || *p_ == '\r' || *p_ == '\t')) ++p_;
  }

  // Python's json module also accepts UTF-16 and UTF-32. They are refused here, because all formats
  // that use this parser require UTF-8.
  void check_encoding() {
    const std::string_view text(begin_, static_cast<std::size_t>(end_ - begin_));
    const bool is_wide = text.starts_with("\xFE\xFF") || text.starts_with("\xFF\xFE") ||
                         (text.size() >= 2 && (text[0] == '\0' || text[1] == '\0'));
    if (is_wide) throw corrupt("unsupported encoding", "utf-8", "utf-16 or utf-32");
    if (text.starts_with("\xEF\xBB\xBF")) p_ += 3;
  }

  /// Parses a scalar or an empty container and returns false, or parses only the start of a
  /// nonempty container (the bracket and, in an object, the first key) and returns true.
  bool value() {
    skip_whitespace();
    switch (peek()) {
      case '{':
        enter(Container::object);
        handler_.begin_object();
        skip_whitespace();
        if (peek() == '}') return leave(), false;
        member_key("a string in double quotes or \"}\"");
        return true;
      case '[':
        enter(Container::array);
        handler_.begin_array();
        skip_whitespace();
        if (peek() == ']') return leave(), false;
        return true;
      case '"':
        handler_.string(string());
        return false;
      default:
        scalar();
        return false;
    }
  }

  /// Called after each item of a container. Returns true if another item follows, false if the
  /// container ended.
  bool after_item() {
    const bool in_object = stack_[depth_ - 1] == Container::object;
    if (peek() == ',') {
      ++p_;
      skip_whitespace();
      if (in_object) member_key("a string in double quotes");
      return true;
    }
    if (peek() != (in_object ? '}' : ']')) fail(in_object ? "\",\" or \"}\"" : "\",\" or \"]\"");
    leave();
    return false;
  }

  void enter(Container container) {
    if (depth_ == kMaxJsonDepth) {
      throw corrupt("nesting is too deep", "at most " + std::to_string(kMaxJsonDepth) + " levels",
                    "more");
    }
    stack_[depth_++] = container;
    ++p_;
  }

  void leave() {
    ++p_;
    --depth_;
    stack_[depth_] == Container::object ? handler_.end_object() : handler_.end_array();
  }

  void member_key(const char* expected) {
    if (peek() != '"') fail(expected);
    handler_.key(string());
    skip_whitespace();
    if (peek() != ':') fail("\":\"");
    ++p_;
  }

  void scalar() {
    if (is_digit(peek())) return number();
    if (peek() == '-' && end_ - p_ > 1 && is_digit(p_[1])) return number();
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    if (literal("null")) return handler_.null();
    if (literal("true")) return handler_.boolean(true);
    if (literal("false")) return handler_.boolean(false);
    if (literal("NaN")) return handler_.number(std::numeric_limits<double>::quiet_NaN());
    if (literal("Infinity")) return handler_.number(kInfinity);
    if (literal("-Infinity")) return handler_.number(-kInfinity);
    fail("a value");
  }

  bool literal(std::string_view word) noexcept {
    if (!std::string_view(p_, static_cast<std::size_t>(end_ - p_)).starts_with(word)) return false;
    p_ += word.size();
    return true;
  }

  void number() {
    const char* const start = p_;
    const bool negative = *p_ == '-';
    if (negative) ++p_;
    std::uint64_t magnitude = 0;
    const char* const digits = p_;
    // A leading zero ends the integer part: "01" is the number 0, followed by an invalid character.
    if (*p_ == '0') {
      ++p_;
    } else {
      // 19 digits cannot overflow 64 bits; for longer numbers, `magnitude` may overflow and is not
      // used.
      for (; p_ != end_ && is_digit(*p_); ++p_) {
        magnitude = magnitude * 10 + static_cast<std::uint64_t>(*p_ - '0');
      }
    }
    const std::ptrdiff_t num_digits = p_ - digits;
    if (fraction_or_exponent()) return real(start);
    constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if (num_digits <= 19 && magnitude <= kMax + (negative ? 1 : 0)) {
      handler_.integer(static_cast<std::int64_t>(negative ? 0 - magnitude : magnitude));
    } else {
      handler_.big_integer({start, static_cast<std::size_t>(p_ - start)});
    }
  }

  /// Skips a fraction (".5") and an exponent ("e+10"). Returns false if there is neither.
  bool fraction_or_exponent() {
    const char* const start = p_;
    if (peek() == '.') digits_after_mark();
    if (peek() == 'e' || peek() == 'E') {
      if (end_ - p_ > 1 && (p_[1] == '+' || p_[1] == '-')) ++p_;
      digits_after_mark();
    }
    return p_ != start;
  }

  void digits_after_mark() {
    ++p_;
    if (!is_digit(peek())) fail("a digit");
    while (is_digit(peek())) ++p_;
  }

  void real(const char* start) {
    double value = 0;
    if (std::from_chars(start, p_, value).ec == std::errc::result_out_of_range) {
      value = out_of_range_value({start, static_cast<std::size_t>(p_ - start)});
    }
    handler_.number(value);
  }

  std::string_view string() {
    const char* run = ++p_;
    p_ = skip_plain(p_, end_);
    if (peek() == '"') return {run, static_cast<std::size_t>(p_++ - run)};
    bool copied = false;
    scratch_.clear();
    for (;; p_ = skip_plain(p_, end_)) {
      if (p_ == end_) fail("the closing quote of a string");
      if (*p_ == '"') break;
      if (*p_ == '\\') {
        scratch_.append(run, p_);
        copied = true;
        escape();
        run = p_;
      } else {
        raw_code_point();
      }
    }
    if (!copied) return {run, static_cast<std::size_t>(p_++ - run)};
    scratch_.append(run, p_++);
    return scratch_;
  }

  void raw_code_point() {
    if (static_cast<unsigned char>(*p_) < 0x20) fail("a control character to be escaped");
    const CodePoint decoded = decode_wtf8(p_, end_);
    if (decoded.size_bytes == 0 || is_surrogate(decoded.value)) fail("utf-8");
    p_ += decoded.size_bytes;
  }

  void escape() {
    ++p_;
    constexpr std::string_view kLetters = "\"\\/bfnrt";
    constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
    const std::size_t at = p_ == end_ ? std::string_view::npos : kLetters.find(*p_);
    if (at != std::string_view::npos) {
      scratch_.push_back(kMeanings[at]);
      ++p_;
      return;
    }
    if (peek() != 'u') fail("an escape such as \\n or \\u0041");
    ++p_;
    std::uint32_t value = hex4();
    // A high surrogate combines with a low one right after it; any other surrogate is kept as is.
    if (value >= 0xD800 && value < 0xDC00 && end_ - p_ >= 2 && p_[0] == '\\' && p_[1] == 'u') {
      const char* const second = p_;
      p_ += 2;
      const std::uint32_t low = hex4();
      if (low >= 0xDC00 && low < 0xE000) {
        value = 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00);
      } else {
        p_ = second;
      }
    }
    append_wtf8(scratch_, value);
  }

  std::uint32_t hex4() {
    std::uint32_t value = 0;
    for (int i = 0; i < 4; ++i, ++p_) {
      const char c = peek();
      const char lower = static_cast<char>(c | 0x20);
      if (!is_digit(c) && (lower < 'a' || lower > 'f')) fail("four hexadecimal digits after \\u");
      value = value << 4 | static_cast<std::uint32_t>(is_digit(c) ? c - '0' : lower - 'a' + 10);
    }
    return value;
  }

  /// Describes the input at p_ for a message: a word of at most 20 bytes, or one character.
  std::string found() const {
    if (p_ == end_) return "the end of the text";
    constexpr std::ptrdiff_t kMaxBytes = 20;
    const char* word_end = p_;
    const auto is_word = [](char c) {
      return is_digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || c == '-' || c == '+';
    };
    while (word_end != end_ && word_end - p_ < kMaxBytes && is_word(*word_end)) ++word_end;
    if (word_end == p_) {
      const std::size_t size = decode_wtf8(p_, end_).size_bytes;
      word_end += size == 0 ? 1 : size;
    }
    return base::quote({p_, static_cast<std::size_t>(word_end - p_)});
  }

  [[noreturn]] void fail(const char* expected) const {
    throw corrupt("not valid json", expected, found());
  }

  Error corrupt(std::string_view problem, std::string_view expected, std::string_view found) const {
    return base::corrupt(where_).problem(problem).expected(expected).found(found, " at byte ",
                                                                           p_ - begin_);
  }

  const char* begin_;
  const char* p_;
  const char* end_;
  const base::Where& where_;
  JsonHandler& handler_;
  std::array<Container, kMaxJsonDepth> stack_{};
  std::size_t depth_ = 0;
  std::string scratch_;
};

}  // namespace

void parse_json(std::string_view text, const base::Where& where, JsonHandler& handler) {
  Parser(text, where, handler).parse();
}

}  // namespace tenfold::codecs

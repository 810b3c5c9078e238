#include "codecs/yaml.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <string>
#include <unordered_set>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "codecs/json/utf8.hpp"

namespace tenfold::codecs {
namespace {

/// Maximum nesting depth: far more than the manifests of snapshots need, but not enough for the
/// recursive parser to exhaust the C++ stack.
constexpr std::size_t kMaxYamlDepth = 100;

using base::is_digit;

constexpr bool is_break(char c) noexcept { return c == '\n'; }

/// Characters that may follow a backslash, besides x, u, U and a line break.
constexpr std::string_view kEscapes = "0abtnvfre \"/\\N_LP";
constexpr std::uint32_t kEscaped[] = {0,   7,   8,   9,    10,   11,   12,     13,    27,
                                      ' ', '"', '/', '\\', 0x85, 0xA0, 0x2028, 0x2029};

class Parser {
 public:
  Parser(std::string_view text, const base::Where& where, JsonHandler& handler)
      : text_(text), where_(where), handler_(handler) {}

  void document() {
    if (!base::is_utf8(text_)) fail("UTF-8", "other bytes");
    for (const std::string_view line_break : {"\xC2\x85", "\xE2\x80\xA8", "\xE2\x80\xA9"}) {
      at_ = text_.find(line_break);
      if (!at_end()) fail("U+0085, U+2028 and U+2029 only as escapes", found());
    }
    at_ = 0;
    if (text_.starts_with("---\n")) at_ = line_start_ = 4;
    if (!next_line()) fail("a document", "nothing");
    block(0);
    if (next_line()) fail("the end of the document", found());
  }

 private:
  // --- position ---

  bool at_end() const noexcept { return at_ >= text_.size(); }
  char peek(std::size_t ahead = 0) const noexcept {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\n';
  }
  bool line_ends() const noexcept { return at_end() || is_break(text_[at_]); }
  std::size_t column() const noexcept { return at_ - line_start_; }
  static constexpr bool is_blank(char c) noexcept { return c == ' ' || is_break(c); }
  void skip_blanks() noexcept {
    while (!at_end() && is_blank(text_[at_])) ++at_;
  }
  void skip_spaces() noexcept {
    while (!at_end() && text_[at_] == ' ') ++at_;
  }

  /// Skips spaces, line breaks and the marker "..." of the document's end. Returns false at the end
  /// of the text. Throws at the marker "---" of a document's start, and if other text follows
  /// "...".
  bool next_line() {
    while (true) {
      skip_spaces();
      if (at_end()) return false;
      if (is_break(text_[at_])) {
        ++at_;
        line_start_ = at_;
      } else if (column() == 0 && text_.substr(at_).starts_with("...") && is_blank(peek(3))) {
        at_ += 3;
        skip_blanks();
        if (!at_end()) fail("one document", found());
      } else if (column() == 0 && text_.substr(at_).starts_with("---") && is_blank(peek(3))) {
        fail("\"---\" only as the first line", found());
      } else {
        return true;
      }
    }
  }

  /// Throws if anything but spaces follows on this line. Called after a value or an explicit key.
  void finish_line() {
    skip_spaces();
    if (!line_ends()) fail("the end of the line", found());
  }

  std::string found() const {
    if (at_end()) return "the end of the document";
    const std::size_t end = std::min(text_.find('\n', at_), text_.size());
    return base::quote(text_.substr(at_, end - at_), 40);
  }

  [[noreturn]] void fail(std::string_view expected, std::string_view what) const {
    const auto line =
        1 + std::count(text_.begin(),
                       text_.begin() + static_cast<std::ptrdiff_t>(std::min(at_, text_.size())),
                       '\n');
    throw base::corrupt(where_)
        .problem("invalid or unsupported YAML")
        .expected(expected)
        .found(what, " at line ", line);
  }

  struct Deeper {
    explicit Deeper(Parser& parser) : parser_(parser) {
      if (++parser_.depth_ > kMaxYamlDepth) {
        parser_.fail("at most " + std::to_string(kMaxYamlDepth) + " levels", "more");
      }
    }
    ~Deeper() { --parser_.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;
    Parser& parser_;
  };

  // --- block collections ---

  bool is_dash() const noexcept { return peek() == '-' && (peek(1) == ' ' || is_break(peek(1))); }

  /// Parses the node that starts at the current position. If it is a scalar, its continuation lines
  /// must be indented by at least `indent`.
  void block(std::size_t indent) {
    const Deeper deeper(*this);
    if (is_dash()) {
      sequence(column());
    } else if (starts_mapping()) {
      mapping(column());
    } else {
      value(indent);
    }
  }

  void sequence(std::size_t indent) {
    handler_.begin_array();
    do {
      ++at_;  // the dash
      skip_spaces();
      if (line_ends()) {
        nested(indent + 1);
      } else {
        block(indent + 1);
      }
    } while (next_line() && column() == indent && is_dash());
    handler_.end_array();
    check_outdented(indent);
  }

  void mapping(std::size_t indent) {
    handler_.begin_object();
    std::unordered_set<std::string> keys;
    do {
      const bool is_explicit = starts_explicit_key();
      take_key(mapping_key(), keys);
      skip_spaces();
      if (!line_ends() && is_explicit) {
        // After an explicit key, a collection may start on the line of the colon.
        block(indent + 1);
        continue;
      }
      if (!line_ends()) {
        const Deeper deeper(*this);
        value(indent + 1);
        continue;
      }
      // The dashes of a list may have the same indentation as the key of the list.
      const std::size_t before = at_;
      const std::size_t before_line = line_start_;
      if (next_line() && column() == indent && is_dash()) {
        const Deeper deeper(*this);
        sequence(indent);
        continue;
      }
      at_ = before;
      line_start_ = before_line;
      nested(indent + 1);
    } while (next_line() && column() == indent && !is_dash());
    handler_.end_object();
    check_outdented(indent);
  }

  void check_outdented(std::size_t indent) {
    if (!at_end() && !line_ends() && column() > indent) fail("less indentation", found());
  }

  /// Parses the value on the lines after its key or dash. If the next line is not indented by at
  /// least `least_indent`, the value is null.
  void nested(std::size_t least_indent) {
    const std::size_t before = at_;
    const std::size_t before_line = line_start_;
    if (next_line() && column() >= least_indent) return block(least_indent);
    at_ = before;
    line_start_ = before_line;
    handler_.null();
  }

  bool starts_explicit_key() const noexcept { return peek() == '?' && peek(1) == ' '; }

  /// True if a mapping starts here: with a key and its colon, or with "? " before an explicit key.
  bool starts_mapping() const {
    if (starts_explicit_key()) return true;
    if (peek() == '[' || peek() == '{') return false;
    if (peek() != '"' && peek() != '\'') return find_colon() != std::string_view::npos;
    const std::size_t end = end_of_quoted();
    if (end == std::string_view::npos) return false;
    const std::size_t size = end - at_;
    return peek(size) == ':' && (peek(size + 1) == ' ' || is_break(peek(size + 1)));
  }

  /// Position after the quoted string that starts here, or npos if it does not end on this line.
  std::size_t end_of_quoted() const {
    const char quote = peek();
    for (std::size_t i = at_ + 1; i < text_.size() && !is_break(text_[i]); ++i) {
      const char next = i + 1 < text_.size() ? text_[i + 1] : '\n';
      const bool is_escape = text_[i] == (quote == '"' ? '\\' : '\'');
      if (is_escape && !is_break(next) && (quote == '"' || next == '\'')) {
        ++i;
      } else if (text_[i] == quote) {
        return i + 1;
      }
    }
    return std::string_view::npos;
  }

  /// Position of the colon that ends a plain key on this line, or npos.
  std::size_t find_colon() const {
    for (std::size_t i = at_; i < text_.size() && !is_break(text_[i]); ++i) {
      if (text_[i] != ':') continue;
      if (i + 1 >= text_.size() || text_[i + 1] == ' ' || is_break(text_[i + 1])) return i;
    }
    return std::string_view::npos;
  }

  void take_key(std::string key, std::unordered_set<std::string>& keys) {
    handler_.key(key);
    const auto [added, is_new] = keys.insert(std::move(key));
    if (!is_new) fail("each key once", base::quote(*added, 40) + " again");
  }

  std::string mapping_key() {
    std::string key;
    if (starts_explicit_key()) {
      const std::size_t indent = column();
      at_ += 2;
      skip_spaces();
      key = peek() == '"' || peek() == '\'' ? quoted(indent, false) : plain(indent + 1);
      finish_line();
      if (!next_line() || column() != indent) fail("a colon below the question mark", found());
    } else if (peek() == '"' || peek() == '\'') {
      key = quoted(column(), true);
    } else {
      check_plain_start();
      const std::size_t colon = find_colon();
      if (colon == std::string_view::npos) fail("a key and a colon", found());
      std::size_t end = colon;
      while (end > at_ && text_[end - 1] == ' ') --end;
      key = text_.substr(at_, end - at_);
      at_ = colon;
    }
    skip_spaces();
    if (peek() != ':') fail("a colon", found());
    ++at_;
    return key;
  }

  // --- values ---

  void value(std::size_t indent) {
    const char c = peek();
    if (c == '[' || c == '{') {
      flow();
    } else if (c == '"' || c == '\'') {
      handler_.string(quoted(indent, false));
    } else {
      scalar(plain(indent));
    }
    finish_line();
  }

  void flow() {
    const Deeper deeper(*this);
    const bool is_list = peek() == '[';
    const char close = is_list ? ']' : '}';
    ++at_;
    is_list ? handler_.begin_array() : handler_.begin_object();
    std::unordered_set<std::string> keys;
    skip_spaces();
    while (peek() != close) {
      if (!is_list) {
        take_key(peek() == '"' || peek() == '\'' ? quoted(0, true) : std::string(flow_plain()),
                 keys);
        skip_spaces();
        if (peek() != ':') fail("a colon", found());
        ++at_;
        skip_spaces();
      }
      flow_value();
      skip_spaces();
      if (peek() == close) break;
      if (peek() != ',') fail(is_list ? "\",\" or \"]\"" : "\",\" or \"}\"", found());
      ++at_;
      skip_spaces();
    }
    ++at_;
    is_list ? handler_.end_array() : handler_.end_object();
  }

  void flow_value() {
    if (peek() == '[' || peek() == '{') {
      flow();
    } else if (peek() == '"' || peek() == '\'') {
      handler_.string(quoted(0, true));
    } else {
      scalar(flow_plain());
    }
  }

  std::string_view flow_plain() {
    check_plain_start();
    const std::size_t begin = at_;
    while (!line_ends() && std::string_view(",[]{}").find(peek()) == std::string_view::npos &&
           !(peek() == ':' && (peek(1) == ' ' || is_break(peek(1))))) {
      ++at_;
    }
    std::size_t end = at_;
    while (end > begin && text_[end - 1] == ' ') --end;
    if (end == begin) fail("a value", found());
    return text_.substr(begin, end - begin);
  }

  void check_plain_start() const {
    // Refuse characters that cannot start a plain scalar, or that start an unsupported feature.
    if (std::string_view("&*!|>%@`#,]}\t").find(peek()) != std::string_view::npos) {
      fail("a plain or quoted value, without anchor, alias, tag or comment", found());
    }
  }

  /// Parses a plain scalar. Its continuation lines must be indented by at least `indent`.
  std::string plain(std::size_t indent) {
    check_plain_start();
    std::string out;
    while (true) {
      const std::size_t begin = at_;
      while (!line_ends()) {
        if (text_[at_] == '#' && at_ > begin && text_[at_ - 1] == ' ') fail("no comment", found());
        if (text_[at_] == ':' && (peek(1) == ' ' || is_break(peek(1)))) {
          fail("a value without a colon", found());
        }
        ++at_;
      }
      std::size_t end = at_;
      while (end > begin && text_[end - 1] == ' ') --end;
      out += text_.substr(begin, end - begin);
      const std::size_t before = at_;
      const std::size_t before_line = line_start_;
      if (!next_line() || column() < indent) {
        at_ = before;
        line_start_ = before_line;
        return out;
      }
      out += ' ';
    }
  }

  void scalar(std::string_view text) {
    if (text.empty() || text == "null" || text == "~") return handler_.null();
    if (text == "true") return handler_.boolean(true);
    if (text == "false") return handler_.boolean(false);
    const std::string_view digits = text.substr(text[0] == '-' || text[0] == '+' ? 1 : 0);
    const bool is_integer = !digits.empty() && std::ranges::all_of(digits, is_digit) &&
                            (digits.size() == 1 || digits[0] != '0');
    if (is_integer) {
      if (text[0] == '+') text.remove_prefix(1);
      std::int64_t number = 0;
      const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
      if (parsed.ec == std::errc()) return handler_.integer(number);
      return handler_.big_integer(text);
    }
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    if (text == ".inf") return handler_.number(kInfinity);
    if (text == "-.inf") return handler_.number(-kInfinity);
    if (text == ".nan") return handler_.number(std::numeric_limits<double>::quiet_NaN());
    // YAML 1.1: 1.0e5 is a string, because its exponent has no sign.
    const std::size_t exponent = text.find_first_of("eE");
    const bool is_signed = exponent == std::string_view::npos ||
                           text.substr(exponent + 1).starts_with('+') ||
                           text.substr(exponent + 1).starts_with('-');
    if (is_signed && !digits.empty() && is_digit(digits[0]) &&
        text.find('.') != std::string_view::npos) {
      double number = 0;
      const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
      if (parsed.ec == std::errc() && parsed.ptr == text.data() + text.size()) {
        return handler_.number(number);
      }
    }
    handler_.string(text);
  }

  // --- quoted strings ---

  std::string quoted(std::size_t indent, bool one_line) {
    const char quote = peek();
    ++at_;
    std::string out;
    kept_ = 0;
    while (true) {
      if (at_end()) fail("the end of the quoted string", "the end of the document");
      const char c = text_[at_];
      if (is_break(c)) {
        if (one_line) fail("a quoted string that ends on its line", "a line break");
        fold(out, indent);
      } else if (c == quote) {
        ++at_;
        if (quote == '"' || peek() != '\'') return out;
        out += '\'';  // two quotes encode one
        ++at_;
      } else if (c == '\\' && quote == '"') {
        ++at_;
        escape(out, one_line);
      } else {
        out += c;
        ++at_;
      }
    }
  }

  /// Folds consecutive line breaks within quotes: a single one becomes a space; of several,
  /// only the first is removed.
  void fold(std::string& out, std::size_t indent) {
    while (!out.empty() && out.back() == ' ' && out.size() > kept_) out.pop_back();
    std::size_t breaks = 0;
    while (!at_end() && is_break(text_[at_])) {
      ++breaks;
      ++at_;
      line_start_ = at_;
      skip_spaces();
    }
    if (at_end() || column() < indent) fail("an indented continuation of the string", found());
    out += breaks == 1 ? std::string(" ") : std::string(breaks - 1, '\n');
    kept_ = out.size();
  }

  void escape(std::string& out, bool one_line) {
    const char c = peek();
    if (line_ends()) {
      if (at_end()) fail("the end of the quoted string", "the end of the document");
      if (one_line) fail("a quoted string that ends on its line", "a line break");
      ++at_;  // an escaped line break is removed
      line_start_ = at_;
      skip_spaces();
      kept_ = out.size();
      return;
    }
    ++at_;
    const std::size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits == 0) {
      const std::size_t which = kEscapes.find(c);
      if (which == std::string_view::npos) fail("a known escape", base::quote({&c, 1}));
      append_wtf8(out, kEscaped[which]);
      kept_ = out.size();
      return;
    }
    std::uint32_t code = 0;
    const std::string_view hex = text_.substr(at_, digits);
    const auto parsed = std::from_chars(hex.data(), hex.data() + hex.size(), code, 16);
    const bool good = hex.size() == digits && parsed.ec == std::errc() &&
                      parsed.ptr == hex.data() + hex.size() && code < 0x110000 &&
                      !is_surrogate(code);
    if (!good) fail("the digits of a character", base::quote(hex));
    append_wtf8(out, code);
    at_ += digits;
    kept_ = out.size();
  }

  std::string_view text_;
  const base::Where& where_;
  JsonHandler& handler_;
  std::size_t at_ = 0;
  std::size_t line_start_ = 0;
  std::size_t depth_ = 0;
  std::size_t kept_ = 0;  ///< in a quoted string: blanks before this position are not trimmed
};

/// Replaces the line breaks CR LF and CR by LF. A string that `yaml.dump` wrote has no such line
/// break, because `yaml.dump` writes CR as an escape.
std::string with_plain_breaks(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r') {
      out += text[i];
    } else if (i + 1 == text.size() || text[i + 1] != '\n') {
      out += '\n';
    }
  }
  return out;
}

}  // namespace

void parse_yaml(std::string_view text, const base::Where& where, JsonHandler& handler) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  std::string copy;
  if (text.find('\r') != std::string_view::npos) {
    copy = with_plain_breaks(text);
    text = copy;
  }
  Parser(text, where, handler).document();
}

}  // namespace tenfold::codecs

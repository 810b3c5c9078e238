#pragma once

#include <cstddef>
#include <cstring>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tenfold {

/// Reads consecutive JSON values from a text, and reports errors without throwing. Accepts what
/// Python's json accepts (including NaN, Infinity and -Infinity), except duplicate keys in skipped
/// objects, nesting deeper than codecs::kMaxJsonDepth, and lone surrogates, which UTF-8 cannot
/// encode.
///
/// The text must be followed by a character that cannot continue a token (',', ']', a line feed or
/// NUL), and kSlackBytes must be readable after the text.
class JsonText {
 public:
  static constexpr std::size_t kSlackBytes = 64;

  /// If `lines` is true, a line feed ends the record and is not skipped as white space.
  JsonText(const char* begin, const char* end, bool lines) { restart(begin, end, lines); }
  /// Continues with another text.
  void restart(const char* begin, const char* end, bool lines) noexcept {
    at_ = begin_ = begin;
    end_ = end;
    lines_ = lines;
    fault_ = nullptr;
    duplicate_.reset();
  }

  const char* at() const noexcept { return at_; }
  void move_to(const char* at) noexcept { at_ = at; }
  char peek() const noexcept { return *at_; }
  bool at_end() const noexcept { return at_ >= end_; }

  void skip_blanks() noexcept {
    while (*at_ == ' ' || *at_ == '\t' || *at_ == '\r' || (*at_ == '\n' && !lines_ && at_ < end_)) {
      ++at_;
    }
  }
  /// Skips blanks, and consumes `c` if it follows.
  bool take(char c) noexcept {
    if (*at_ != c) {
      skip_blanks();
      if (*at_ != c) return false;
    }
    ++at_;
    return true;
  }
  /// Consumes `word` if it follows: null, true, NaN, ...
  bool take_word(std::string_view word) noexcept {
    if (static_cast<std::size_t>(end_ - at_) < word.size()) return false;
    if (std::memcmp(at_, word.data(), word.size()) != 0) return false;
    at_ += word.size();
    return true;
  }

  /// Consumes and decodes a string. `text` points into the source or into `scratch`.
  bool take_string(std::string_view& text, std::string& scratch);
  /// Skips a value of any kind. An object with duplicate keys is an error.
  bool skip_value(std::size_t depth = 0);

  /// Records an error at the current position, where `expected` should be, unless there was an
  /// earlier error. Returns false.
  bool fail(const char* expected) noexcept {
    if (fault_ == nullptr) {
      fault_ = expected;
      fault_at_ = at_;
    }
    return false;
  }
  /// The recorded error: `expected a key in quotes, found "x: 1}" at byte 7`. The first byte of the
  /// text has number 1.
  std::string fault() const;

 private:
  /// One past the closing quote of the string at `at_`, or null after an error. Sets `has_escapes`.
  const char* end_of_string(bool& has_escapes) noexcept;
  bool decode(const char* from, const char* to, std::string& into);
  bool skip_key();
  bool skip_string();
  bool check_keys(std::size_t first);
  bool skip_object(std::size_t depth);
  bool skip_array(std::size_t depth);

  const char* at_ = nullptr;
  const char* begin_ = nullptr;
  const char* end_ = nullptr;
  bool lines_ = true;
  const char* fault_ = nullptr;
  const char* fault_at_ = nullptr;
  std::optional<std::string> duplicate_;  ///< the key, if the error is a duplicate key
  /// Keys of the enclosing skipped objects, outermost first; they point into the source or into
  /// `decoded_`.
  std::vector<std::string_view> keys_;
  std::deque<std::string> decoded_;
};

}  // namespace tenfold

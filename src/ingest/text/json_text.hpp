#pragma once

#include <cstddef>
#include <cstring>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace tenfold {

/// Reads one JSON value after the other from a text, as Python's json reads it (NaN, Infinity and
/// -Infinity too), and says what is wrong with it without throwing. Lone surrogates are wrong here:
/// no UTF-8 says them.
///
/// Behind the text there must be a character that continues no token, ',', ']', a line feed or a
/// NUL, and kSlackBytes that may be read.
class JsonText {
 public:
  static constexpr std::size_t kSlackBytes = 64;

  /// `lines`: a line feed ends the text; otherwise it is a blank like others.
  JsonText(const char* begin, const char* end, bool lines) { restart(begin, end, lines); }
  /// The same for another text.
  void restart(const char* begin, const char* end, bool lines) noexcept {
    at_ = begin_ = begin;
    end_ = end;
    lines_ = lines;
    fault_ = nullptr;
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
  /// Takes `c` and the blanks before it, if that is what follows.
  bool take(char c) noexcept {
    if (*at_ != c) {
      skip_blanks();
      if (*at_ != c) return false;
    }
    ++at_;
    return true;
  }
  /// Takes a word, if that is what follows: null, true, NaN, ...
  bool take_word(std::string_view word) noexcept {
    if (static_cast<std::size_t>(end_ - at_) < word.size()) return false;
    if (std::memcmp(at_, word.data(), word.size()) != 0) return false;
    at_ += word.size();
    return true;
  }

  /// Takes a string, decoded: a part of the text, or what `scratch` holds then.
  bool take_string(std::string_view& text, std::string& scratch);
  /// Takes a value of any kind; nothing of it is kept. An object whose keys come twice is wrong.
  bool skip_value(std::size_t depth = 0);

  /// Says what was expected where the text stands; returns false.
  bool fail(const char* expected) noexcept {
    if (fault_ == nullptr) {
      fault_ = expected;
      fault_at_ = at_;
    }
    return false;
  }
  /// "expected a string, found "x at character 7".
  std::string fault() const;

 private:
  /// One past the last character of a string that starts at `at_`, or null; whether there are
  /// escapes.
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
  /// Of the objects that are passed over, the outer ones first: as they stand, or `decoded_`.
  std::vector<std::string_view> keys_;
  std::deque<std::string> decoded_;
};

}  // namespace tenfold

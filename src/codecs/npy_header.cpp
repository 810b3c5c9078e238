#include "codecs/npy_header.hpp"

#include <algorithm>
#include <charconv>
#include <optional>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"

namespace tenfold::codecs {
namespace {

constexpr std::size_t kAlignment = 64;
/// Number of digits that numpy.save reserves for the length of one axis, so that the header keeps
/// its size if the array grows along this axis: the last axis in Fortran order, else the first.
constexpr std::size_t kGrowthDigits = 21;
constexpr std::size_t kMaxDepth = 32;

Error bad_header(const base::Where& where) { return base::corrupt(where).part("header"); }

/// Parses the Python literal of a header. Positions in messages count from the start of the file.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, std::size_t text_offset, bool long_integers,
               const base::Where& where)
      : text_(text), text_offset_(text_offset), long_integers_(long_integers), where_(where) {}

  NpyHeader parse() {
    NpyHeader header;
    bool has_descr = false;
    bool has_order = false;
    bool has_shape = false;
    expect('{');
    while (peek() != '}') {
      const std::string key = string();
      expect(':');
      if (key == "descr") {
        once(key, has_descr);
        descr(header);
      } else if (key == "fortran_order") {
        once(key, has_order);
        header.fortran_order = boolean();
      } else if (key == "shape") {
        once(key, has_shape);
        header.shape = shape();
      } else {
        throw bad_header(where_)
            .problem("unknown key")
            .expected("\"descr\", \"fortran_order\" and \"shape\"")
            .found(base::quote(key));
      }
      if (peek() != '}') expect(',');
    }
    expect('}');
    if (peek() != '\0' || at_ != text_.size()) fail("only spaces after the dict");
    const char* missing = !has_descr   ? "descr"
                          : !has_order ? "fortran_order"
                          : !has_shape ? "shape"
                                       : nullptr;
    if (missing != nullptr) {
      throw bad_header(where_)
          .problem("a key is missing")
          .expected("\"", missing, "\"")
          .found("none");
    }
    return header;
  }

 private:
  [[noreturn]] void fail(const std::string& expected) const {
    const std::string found = at_ < text_.size() ? base::quote(text_.substr(at_, 1)) : "the end";
    throw bad_header(where_)
        .problem("not a valid literal")
        .expected(expected)
        .found(found, " at byte ", text_offset_ + at_);
  }

  void once(const std::string& key, bool& seen) const {
    if (seen) {
      throw bad_header(where_)
          .problem(base::quote(key), " is duplicated")
          .expected("it once")
          .found("two");
    }
    seen = true;
  }

  /// Skips blanks. Returns the next character, or NUL at the end.
  char peek() {
    at_ = std::min(text_.find_first_not_of(" \t\r\n\f", at_), text_.size());
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  void expect(char wanted) {
    if (peek() != wanted || at_ == text_.size()) fail(base::quote({&wanted, 1}));
    ++at_;
  }

  bool take_word(std::string_view word) {
    peek();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  /// Parses a string in single or double quotes. Escapes are not decoded: numpy.save writes them
  /// only in field names, and callers refuse structured dtypes.
  std::string string() {
    const char mark = peek();
    if (mark != '\'' && mark != '"') fail("a string");
    const std::size_t begin = ++at_;
    while (at_ < text_.size() && text_[at_] != mark) {
      if (text_[at_] == '\n') fail("a quote that ends the string");
      at_ += text_[at_] == '\\' ? std::size_t{2} : std::size_t{1};
    }
    if (at_ >= text_.size()) {
      at_ = text_.size();
      fail("a quote that ends the string");
    }
    return std::string(text_.substr(begin, at_++ - begin));
  }

  bool boolean() {
    if (take_word("True")) return true;
    if (take_word("False")) return false;
    fail("True or False");
  }

  std::int64_t integer() {
    peek();
    const std::size_t begin = at_;
    const std::size_t end = std::min(text_.find_first_not_of("0123456789", at_), text_.size());
    if (end == begin) fail("a length from 0");
    if (text_[begin] == '0' && end != begin + 1) fail("a length without leading zeros");
    std::int64_t value = 0;
    const auto result = std::from_chars(text_.data() + begin, text_.data() + end, value);
    if (result.ec != std::errc()) {
      throw bad_header(where_)
          .problem("a length does not fit 63 bits")
          .expected("at most 9223372036854775807")
          .found(text_.substr(begin, std::min(end - begin, std::size_t{40})));
    }
    at_ = end;
    if (long_integers_ && at_ < text_.size() && text_[at_] == 'L') ++at_;  // written by Python 2
    return value;
  }

  /// Parses a tuple: () or (3,) or (2, 3) or (2, 3,). Refuses (3), which is a number in Python.
  std::vector<std::int64_t> shape() {
    std::vector<std::int64_t> lengths;
    expect('(');
    bool comma = true;
    while (peek() != ')') {
      if (!comma) fail("\",\" or \")\"");
      lengths.push_back(integer());
      comma = peek() == ',';
      if (comma) ++at_;
    }
    if (lengths.size() == 1 && !comma) fail("\",\", which makes it a tuple");
    expect(')');
    return lengths;
  }

  void descr(NpyHeader& header) {
    const char first = peek();
    if (first == '\'' || first == '"') {
      header.descr = string();
      return;
    }
    // A structured dtype: a list of fields, or a tuple of a dtype and a shape. It is not parsed,
    // only skipped, because callers refuse it with a message that quotes it.
    if (first != '[' && first != '(') fail("a string, list or tuple");
    const std::size_t begin = at_;
    skip(0);
    header.descr = text_.substr(begin, at_ - begin);
    header.is_structured = true;
  }

  void skip(std::size_t depth) {
    if (depth > kMaxDepth) fail("at most " + std::to_string(kMaxDepth) + " levels");
    const char first = peek();
    if (first == '\'' || first == '"') {
      string();
    } else if (first == '[' || first == '(') {
      const char last = first == '[' ? ']' : ')';
      ++at_;
      while (peek() != last) {
        skip(depth + 1);
        if (peek() != last) expect(',');
      }
      ++at_;
    } else {
      integer();
    }
  }

  std::string_view text_;
  std::size_t text_offset_;
  bool long_integers_;
  const base::Where& where_;
  std::size_t at_ = 0;
};

std::uint64_t little_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    value |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  }
  return value;
}

std::size_t length_bytes(char major) { return major == 1 ? 2 : 4; }

}  // namespace

std::uint64_t npy_data_offset(std::string_view prefix, const base::Where& where) {
  if (!prefix.starts_with(kNpyMagic)) {
    throw bad_header(where)
        .problem("not a NumPy file")
        .expected("it to start with \"\\x93NUMPY\"")
        .found((prefix.empty() ? "nothing" : base::quote(prefix.substr(0, 6))));
  }
  if (prefix.size() < 8) {
    throw bad_header(where).problem("it is truncated").expected("a version").found("the end");
  }
  const char major = prefix[6];
  const char minor = prefix[7];
  if (major < 1 || major > 3 || minor != 0) {
    throw base::unsupported(where)
        .part("header")
        .problem("unknown version")
        .expected("1.0, 2.0 or 3.0")
        .found(static_cast<unsigned char>(major), ".", static_cast<unsigned char>(minor));
  }
  const std::size_t digits = length_bytes(major);
  if (prefix.size() < 8 + digits) {
    throw bad_header(where).problem("it is truncated").expected("its length").found("the end");
  }
  const std::uint64_t length = little_endian(prefix.substr(8, digits));
  if (length > kMaxNpyHeaderBytes) {
    throw bad_header(where)
        .problem("too long")
        .expected("at most ", kMaxNpyHeaderBytes, " bytes")
        .found(length);
  }
  return 8 + digits + length;
}

NpyHeader parse_npy_header(std::string_view bytes, const base::Where& where) {
  const std::uint64_t end = npy_data_offset(bytes, where);
  if (end > bytes.size()) {
    throw bad_header(where)
        .problem("reaches past the end of the file")
        .expected(end, " bytes")
        .found(bytes.size())
        .remedy("the file may be truncated");
  }
  const std::size_t begin = 8 + length_bytes(bytes[6]);
  const std::string_view text = bytes.substr(begin, static_cast<std::size_t>(end) - begin);
  NpyHeader header = HeaderParser(text, begin, bytes[6] < 3, where).parse();
  header.data_offset_bytes = end;
  return header;
}

std::string write_npy_header(const NpyHeader& header) {
  const std::string quote = header.is_structured ? "" : "'";
  std::string text = "{'descr': " + quote + header.descr + quote +
                     ", 'fortran_order': " + (header.fortran_order ? "True" : "False") +
                     ", 'shape': (";
  for (std::size_t i = 0; i < header.shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(header.shape[i]);
  }
  text += header.shape.size() == 1 ? ",), }" : "), }";
  if (!header.shape.empty()) {
    const auto grows = header.fortran_order ? header.shape.back() : header.shape.front();
    text.append(kGrowthDigits - std::to_string(grows).size(), ' ');
  }
  const auto padding = [&](std::size_t digits) {
    return kAlignment - (8 + digits + text.size() + 1) % kAlignment;
  };
  char major = 1;
  if (text.size() + 1 + padding(2) > 0xFFFF) major = 2;
  const std::size_t digits = length_bytes(major);
  text.append(padding(digits), ' ');
  text += '\n';

  std::string bytes(kNpyMagic);
  bytes += major;
  bytes += '\0';
  for (std::size_t i = 0; i < digits; ++i) {
    bytes += static_cast<char>((text.size() >> (8 * i)) & 0xFF);
  }
  return bytes + text;
}

}  // namespace tenfold::codecs

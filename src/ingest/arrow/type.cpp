#include "ingest/arrow/type.hpp"

#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include <tenfold/error.hpp>

#include "base/text.hpp"

namespace tenfold {
namespace {

/// Types in types: no program nests them deeper.
constexpr std::size_t kMaxDepth = 64;
/// No table has more columns; a damaged count must not become an allocation.
constexpr std::int64_t kMaxChildren = std::int64_t{1} << 20;

class TypeParser {
 public:
  explicit TypeParser(std::string where) : where_(std::move(where)) {}

  ArrowType parse(const ArrowSchema& schema) {
    if (schema.release == nullptr) corrupt("expected a schema, found one that was released");
    if (schema.format == nullptr) corrupt("format: expected a text, found a null pointer");
    if (path_.size() > kMaxDepth) corrupt("nested too deeply: expected at most 64 levels");
    ArrowType type;
    type.name = schema.name == nullptr ? "" : schema.name;
    path_.push_back(type.name);
    type.format = schema.format;
    if (!base::is_utf8(type.name)) corrupt("name: expected UTF-8, found " + base::quote(type.name));
    if (!read_plain(type) && !read_time(type)) read_nested(type);
    read_children(schema, type);
    if (schema.dictionary != nullptr) {
      if (type.kind != ArrowKind::number || !is_integer(type.stored)) {
        corrupt("dictionary: expected indices of an integer type, found format " +
                base::quote(type.format));
      }
      type.dictionary = std::make_shared<const ArrowType>(parse(*schema.dictionary));
    }
    path_.pop_back();
    return type;
  }

 private:
  [[noreturn]] void corrupt(const std::string& what) const {
    throw Error(ErrorCode::corrupt, place() + ": " + what);
  }
  std::string place() const {
    std::string text = where_ + ": schema";
    if (path_.size() > 1) {
      text += ": column " + base::quote(dotted(KeyPath(path_.begin() + 1, path_.end())));
    }
    return text;
  }

  static bool read_plain(ArrowType& type) {
    static constexpr std::pair<char, DType> kNumbers[] = {
        {'c', DType::int8},    {'C', DType::uint8},   {'s', DType::int16},  {'S', DType::uint16},
        {'i', DType::int32},   {'I', DType::uint32},  {'l', DType::int64},  {'L', DType::uint64},
        {'e', DType::float16}, {'f', DType::float32}, {'g', DType::float64}};
    const std::string_view format = type.format;
    if (format == "vu" || format == "vz") {
      type.kind = ArrowKind::text_view;
      type.is_binary = format == "vz";
      return true;
    }
    if (format.size() != 1) return false;
    for (const auto& [letter, dtype] : kNumbers) {
      if (format[0] != letter) continue;
      type.kind = ArrowKind::number;
      type.stored = type.dtype = dtype;
      return true;
    }
    switch (format[0]) {
      case 'n':
        type.kind = ArrowKind::null;
        return true;
      case 'b':
        type.kind = ArrowKind::boolean;
        type.dtype = DType::bool_;
        return true;
      case 'u':
      case 'U':
      case 'z':
      case 'Z':
        type.kind = ArrowKind::text;
        type.is_binary = format[0] == 'z' || format[0] == 'Z';
        type.is_large = format[0] == 'U' || format[0] == 'Z';
        return true;
      default:
        return false;
    }
  }

  static std::string_view unit_of(char letter) {
    switch (letter) {
      case 's':
        return "s";
      case 'm':
        return "ms";
      case 'u':
        return "us";
      case 'n':
        return "ns";
      default:
        return "";
    }
  }

  /// Dates, times, timestamps, durations, intervals of months: counts of a unit.
  bool read_time(ArrowType& type) const {
    const std::string_view format = type.format;
    if (format.size() < 3 || format[0] != 't') return false;
    const auto count = [&](DType stored, std::string_view unit) {
      type.kind = ArrowKind::number;
      type.stored = stored;
      type.dtype = DType::int64;
      type.unit = unit;
      return !unit.empty();
    };
    const char letter = format[2];
    switch (format[1]) {
      case 'd':
        if (format == "tdD") return count(DType::int32, "days");
        return format == "tdm" && count(DType::int64, "ms");
      case 't':
        return format.size() == 3 &&
               count(letter == 's' || letter == 'm' ? DType::int32 : DType::int64, unit_of(letter));
      case 's':  // a time zone may follow; the counts are UTC's whatever it is
        return format.size() >= 4 && format[3] == ':' && count(DType::int64, unit_of(letter));
      case 'D':
        return format.size() == 3 && count(DType::int64, unit_of(letter));
      case 'i':
        return format == "tiM" && count(DType::int32, "months");
      default:
        return false;
    }
  }

  std::optional<std::int64_t> number(std::string_view& text) const {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc()) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    if (!text.empty() && text[0] == ',') text.remove_prefix(1);
    return value;
  }

  /// "w:16", "+w:3"
  std::int64_t width(std::string_view text) const {
    constexpr std::int64_t kMaxWidth = std::int64_t{1} << 31;
    const auto value = number(text);
    if (!value || !text.empty() || *value < 0 || *value >= kMaxWidth) {
      corrupt("format: expected a length, found " + base::quote(text));
    }
    return *value;
  }

  void read_nested(ArrowType& type) const {
    const std::string_view format = type.format;
    if (format.starts_with("w:")) {
      type.kind = ArrowKind::fixed_bytes;
      type.is_binary = true;
      type.width = width(format.substr(2));
    } else if (format.starts_with("d:")) {
      read_decimal(type);
    } else if (format == "+l" || format == "+L" || format == "+vl" || format == "+vL") {
      type.kind = format[1] == 'v' ? ArrowKind::list_view : ArrowKind::list;
      type.is_large = format.back() == 'L';
    } else if (format.starts_with("+w:")) {
      type.kind = ArrowKind::fixed_list;
      type.width = width(format.substr(3));
    } else if (format == "+s") {
      type.kind = ArrowKind::record;
    } else if (format == "+m") {
      type.kind = ArrowKind::map;
    } else {
      throw Error(ErrorCode::unsupported,
                  place() +
                      ": a type that no column holds: expected numbers, dates and times, text, "
                      "bytes, decimals, lists, structs, maps or dictionaries, found the Arrow "
                      "format " +
                      base::quote(format) + "; cast or drop the column before");
    }
  }

  void read_decimal(ArrowType& type) const {
    std::string_view text = std::string_view(type.format).substr(2);
    const auto precision = number(text);
    const auto scale = number(text);
    const auto bits = text.empty() ? std::optional<std::int64_t>(128) : number(text);
    const bool known = bits && (*bits == 32 || *bits == 64 || *bits == 128 || *bits == 256);
    if (!precision || !scale || !known || *scale < -1000 || *scale > 1000) {
      corrupt("format: expected a decimal's precision, scale and bits, found " +
              base::quote(type.format));
    }
    type.kind = ArrowKind::decimal;
    type.width = *bits / 8;
    type.scale = static_cast<std::int32_t>(*scale);
  }

  void read_children(const ArrowSchema& schema, ArrowType& type) {
    const bool is_record = type.kind == ArrowKind::record;
    const std::int64_t expected = type.is_list() || type.kind == ArrowKind::map ? 1 : 0;
    if (schema.n_children < 0 || schema.n_children > kMaxChildren ||
        (!is_record && schema.n_children != expected)) {
      corrupt("format " + base::quote(type.format) + ": children: expected " +
              (is_record ? "some" : std::to_string(expected)) + ", found " +
              std::to_string(schema.n_children));
    }
    if (schema.n_children > 0 && schema.children == nullptr) {
      corrupt("children: expected " + std::to_string(schema.n_children) + ", found a null pointer");
    }
    for (std::int64_t i = 0; i < schema.n_children; ++i) {
      if (schema.children[i] == nullptr) {
        corrupt("child " + std::to_string(i) + ": expected a schema, found a null pointer");
      }
      type.children.push_back(parse(*schema.children[i]));
    }
    if (type.kind == ArrowKind::map &&
        (type.children[0].kind != ArrowKind::record || type.children[0].children.size() != 2)) {
      corrupt("map: expected a child of key and value, found format " +
              base::quote(type.children[0].format));
    }
  }

  std::string where_;
  KeyPath path_;  ///< from the root, which has no name
};

}  // namespace

ArrowType parse_arrow_type(const ArrowSchema& schema, const std::string& where) {
  return TypeParser(where).parse(schema);
}

}  // namespace tenfold

#include "ingest/arrow/array.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/tensor/integer_type.hpp"

namespace tenfold {
namespace {

/// Maximum nesting of types, which limits the recursion.
constexpr std::size_t kMaxDepth = 64;
/// Maximum number of children of a type. A schema with more children is considered corrupt.
constexpr std::int64_t kMaxChildren = std::int64_t{1} << 20;

class TypeParser {
 public:
  explicit TypeParser(std::string where) : where_(std::move(where)) {}

  ArrowType parse(const ArrowSchema& schema) {
    if (schema.release == nullptr) {
      throw corrupt().expected("a schema").found("one that was released");
    }
    if (schema.format == nullptr) {
      throw corrupt().part("format").expected("a string").found("a null pointer");
    }
    if (path_.size() > kMaxDepth) {
      throw corrupt().problem("nested too deeply").expected("at most 64 levels");
    }
    ArrowType type;
    type.name = schema.name == nullptr ? "" : schema.name;
    path_.push_back(type.name);
    type.format = schema.format;
    type.field_unit = unit_in(schema.metadata);
    if (!base::is_utf8(type.name)) {
      throw corrupt().part("name").expected("UTF-8").found(base::quote(type.name));
    }
    if (!read_plain(type) && !read_time(type)) read_nested(type);
    read_children(schema, type);
    if (schema.dictionary != nullptr) {
      if (type.kind != ArrowKind::number || !is_integer(type.stored)) {
        throw corrupt()
            .part("dictionary")
            .expected("indices of an integer type")
            .found("format ", base::quote(type.format));
      }
      type.dictionary = std::make_shared<const ArrowType>(parse(*schema.dictionary));
    }
    path_.pop_back();
    return type;
  }

 private:
  Error corrupt() const { return base::corrupt(place()); }
  base::Where place() const {
    const base::Where schema(where_, "schema");
    if (path_.size() < 2) return schema;
    return schema.at("column " + base::quote(dotted(KeyPath(path_.begin() + 1, path_.end()))));
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

  /// The value of the key "unit" in the metadata of a field; empty if there is none.
  static std::string unit_in(const char* metadata) {
    // The number of pairs, then for each key and each value its length and bytes; native int32.
    const auto number = [&] {
      std::int32_t value = 0;
      std::memcpy(&value, metadata, sizeof(value));
      metadata += sizeof(value);
      return value;
    };
    const auto text = [&] {
      const std::int32_t length = number();
      if (length <= 0) return std::string_view();
      const std::string_view bytes(metadata, static_cast<std::size_t>(length));
      metadata += length;
      return bytes;
    };
    if (metadata == nullptr) return "";
    for (std::int32_t left = number(); left > 0; --left) {
      const std::string_view key = text();
      const std::string_view value = text();
      if (key == "unit" && base::is_utf8(value)) return std::string(value);
    }
    return "";
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

  /// Parses dates, times, timestamps, durations and intervals of months, which are stored as counts
  /// of a unit.
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
      case 's':  // a time zone may follow; then the values are in UTC
        return format.size() >= 4 && format[3] == ':' && count(DType::int64, unit_of(letter));
      case 'D':
        return format.size() == 3 && count(DType::int64, unit_of(letter));
      case 'i':
        return format == "tiM" && count(DType::int32, "months");
      default:
        return false;
    }
  }

  /// Consumes a number, and the comma after it if more text follows the comma.
  std::optional<std::int64_t> number(std::string_view& text) const {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc()) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    if (text.size() > 1 && text[0] == ',') text.remove_prefix(1);
    return value;
  }

  /// Parses the number after the colon of "w:16" or "+w:3".
  std::int64_t width(std::string_view text) const {
    constexpr std::int64_t kMaxWidth = std::int64_t{1} << 31;
    std::string_view rest = text;
    const auto value = number(rest);
    if (!value || !rest.empty() || *value < 0 || *value >= kMaxWidth) {
      throw corrupt()
          .part("format")
          .expected("a length of 0 to ", kMaxWidth - 1)
          .found(base::quote(text));
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
      throw base::unsupported(place())
          .problem("no column can store this type")
          .expected(
              "numbers, dates and times, text, bytes, decimals, lists, structs, maps or "
              "dictionaries")
          .found("the Arrow format ", base::quote(format))
          .remedy("cast or drop the column in the source");
    }
  }

  void read_decimal(ArrowType& type) const {
    std::string_view text = std::string_view(type.format).substr(2);
    const auto precision = number(text);
    const auto scale = number(text);
    const auto bits = text.empty() ? std::optional<std::int64_t>(128) : number(text);
    const bool known = bits && (*bits == 32 || *bits == 64 || *bits == 128 || *bits == 256);
    if (!precision || !scale || !known || !text.empty() || *scale < -1000 || *scale > 1000) {
      throw corrupt()
          .part("format")
          .expected("a decimal's precision, scale and bits")
          .found(base::quote(type.format));
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
      throw corrupt()
          .part("format ", base::quote(type.format), ": children")
          .expected((is_record ? "0 to " + std::to_string(kMaxChildren) : std::to_string(expected)))
          .found(schema.n_children);
    }
    if (schema.n_children > 0 && schema.children == nullptr) {
      throw corrupt().part("children").expected(schema.n_children).found("a null pointer");
    }
    for (std::int64_t i = 0; i < schema.n_children; ++i) {
      if (schema.children[i] == nullptr) {
        throw corrupt().part("child ", i).expected("a schema").found("a null pointer");
      }
      type.children.push_back(parse(*schema.children[i]));
    }
    if (type.kind == ArrowKind::map &&
        (type.children[0].kind != ArrowKind::record || type.children[0].children.size() != 2)) {
      throw corrupt()
          .part("map")
          .expected("a child that is a struct of key and value")
          .found("format ", base::quote(type.children[0].format), " with ",
                 type.children[0].children.size(), " fields");
    }
  }

  std::string where_;
  KeyPath path_;  ///< starting at the root, which messages do not name
};

}  // namespace

ArrowType parse_arrow_type(const ArrowSchema& schema, const std::string& where) {
  return TypeParser(where).parse(schema);
}

namespace {

/// Maximum rows of one array, so that offsets and products cannot overflow.
constexpr std::int64_t kMaxLength = std::int64_t{1} << 48;
/// A view stores up to 12 bytes inline.
constexpr std::int32_t kInlineBytes = 12;
constexpr std::size_t kViewBytes = 16;

struct View {
  std::int32_t size;
  std::int32_t buffer;
  std::int32_t offset;
};

View view_at(const ArrowArray& array, std::int64_t at) {
  const auto* bytes =
      static_cast<const std::byte*>(array.buffers[1]) + static_cast<std::size_t>(at) * kViewBytes;
  View view{};
  std::memcpy(&view.size, bytes, 4);
  std::memcpy(&view.buffer, bytes + 8, 4);
  std::memcpy(&view.offset, bytes + 12, 4);
  return view;
}

class Checker {
 public:
  explicit Checker(const std::string& where) : where_(where) {}

  /// A struct array whose field is checked. `outer`: the struct array that contains it, or null.
  struct Enclosing {
    ArrowSlice rows;
    const Enclosing* outer;
  };

  /// Checks `array`, which must have at least `needed` values after its offset. `enclosing`: the
  /// struct array of which `array` is a field, or null.
  void check(const ArrowArray& array, const ArrowType& type, std::int64_t needed,
             const Enclosing* enclosing = nullptr) {
    path_.push_back(type.name);
    if (array.length < 0 || array.offset < 0 || array.length > kMaxLength ||
        array.offset > kMaxLength) {
      throw corrupt()
          .part("length and offset")
          .expected("numbers from 0 to 2^48")
          .found(array.length, " and ", array.offset);
    }
    if (array.length < needed) {
      throw corrupt().part("length").expected("at least ", needed).found(array.length);
    }
    if (array.null_count < -1 || array.null_count > array.length) {
      throw corrupt().part("null_count").expected("-1 to ", array.length).found(array.null_count);
    }
    const bool has_rows = array.length > 0;
    check_buffers(array, type, has_rows);
    check_children(array, type, enclosing);
    if (type.dictionary) {
      if (array.dictionary == nullptr) {
        throw corrupt().part("dictionary").expected("an array").found("a null pointer");
      }
      check(*array.dictionary, *type.dictionary, 0);
      if (has_rows) check_indices(array, type, enclosing);
    }
    if (has_rows && type.kind == ArrowKind::text) check_text(array, type);
    if (has_rows && type.kind == ArrowKind::text_view) check_views(array);
    path_.pop_back();
  }

 private:
  Error corrupt() const {
    const Error error = base::corrupt(where_);
    if (path_.size() < 2) return error;
    const std::string column = dotted(KeyPath(path_.begin() + 1, path_.end()));
    return Error(error).part("column ", base::quote(column));
  }

  void check_buffers(const ArrowArray& array, const ArrowType& type, bool has_rows) const {
    // Arrow defines no buffers for a null array, but polars exports one. It is not read.
    if (type.kind == ArrowKind::null) return;
    std::int64_t expected = 2;
    switch (type.kind) {
      case ArrowKind::record:
      case ArrowKind::fixed_list:
        expected = 1;
        break;
      case ArrowKind::text:
      case ArrowKind::list_view:
        expected = 3;
        break;
      default:
        break;
    }
    const bool variadic = type.kind == ArrowKind::text_view;
    if (variadic) expected = 3;
    if (variadic ? array.n_buffers < expected || array.n_buffers > (1 << 20)
                 : array.n_buffers != expected) {
      throw corrupt()
          .part("buffers")
          .expected(expected, (variadic ? " or more" : ""), " of the format ",
                    base::quote(type.format))
          .found(array.n_buffers);
    }
    if (array.buffers == nullptr) {
      throw corrupt().part("buffers").expected(expected).found("a null pointer");
    }
    if (!has_rows) return;
    // The first buffer is validity, which may be null; the buffer of string bytes may be null if it
    // is empty.
    const std::int64_t last = type.kind == ArrowKind::text || variadic ? 2 : array.n_buffers;
    for (std::int64_t i = 1; i < last; ++i) {
      if (array.buffers[i] == nullptr && !(type.kind == ArrowKind::fixed_bytes && !type.width)) {
        throw corrupt()
            .part("buffer ", i)
            .expected(array.length, " values")
            .found("a null pointer");
      }
    }
    if (array.null_count > 0 && array.buffers[0] == nullptr) {
      throw corrupt()
          .part("buffer 0")
          .expected("the validity of ", array.null_count, " nulls")
          .found("a null pointer");
    }
  }

  void check_children(const ArrowArray& array, const ArrowType& type, const Enclosing* enclosing) {
    const auto expected = static_cast<std::int64_t>(type.children.size());
    if (array.n_children != expected) {
      throw corrupt().part("children").expected(expected).found(array.n_children);
    }
    if (expected > 0 && array.children == nullptr) {
      throw corrupt().part("children").found("a null pointer");
    }
    const Enclosing here{ArrowSlice::whole(array, type), enclosing};
    for (std::int64_t i = 0; i < expected; ++i) {
      if (array.children[i] == nullptr) {
        throw corrupt().part("child ", i).expected("an array").found("a null pointer");
      }
      std::int64_t needed = 0;
      if (type.kind == ArrowKind::record) needed = array.offset + array.length;
      if (type.kind == ArrowKind::fixed_list) {
        // The product could overflow.
        const std::int64_t lists = array.offset + array.length;
        if (lists > 0 && type.width > kMaxLength / lists) {
          throw corrupt()
              .part("length")
              .expected("at most 2^48 items")
              .found(lists, " lists of ", type.width);
        }
        needed = lists * type.width;
      }
      if (needed > kMaxLength) throw corrupt().part("length").expected("at most 2^48 items");
      check(*array.children[i], type.children[static_cast<std::size_t>(i)], needed,
            type.kind == ArrowKind::record ? &here : nullptr);
    }
    const bool has_ranges = type.kind == ArrowKind::list || type.kind == ArrowKind::list_view ||
                            type.kind == ArrowKind::map;
    if (has_ranges && array.length > 0) check_ranges(array, type);
  }

  void check_ranges(const ArrowArray& array, const ArrowType& type) const {
    const ArrowSlice all = ArrowSlice::whole(array, type);
    const std::int64_t limit = array.children[0]->length;
    for (std::int64_t i = 0; i < array.length; ++i) {
      if (type.kind == ArrowKind::list_view && !all.is_valid(i)) continue;
      const auto [begin, end] = all.range_at(i);
      if (begin >= 0 && begin <= end && end <= limit) continue;
      throw corrupt()
          .part("list ", i)
          .expected("items within 0 to ", limit)
          .found(begin, " to ", end);
    }
  }

  void check_text(const ArrowArray& array, const ArrowType& type) const {
    const ArrowSlice all = ArrowSlice::whole(array, type);
    const auto offset = [&](std::int64_t i) {
      return type.is_large ? all.value_at<std::int64_t>(1, i)
                           : static_cast<std::int64_t>(all.value_at<std::int32_t>(1, i));
    };
    std::int64_t last = offset(0);
    if (last < 0) throw corrupt().part("offset 0").expected("0 or more").found(last);
    for (std::int64_t i = 1; i <= array.length; ++i) {
      const std::int64_t next = offset(i);
      if (next < last || next > kMaxLength) {
        throw corrupt().part("offset ", i).expected(last, " to 2^48").found(next);
      }
      last = next;
    }
    if (last > 0 && array.buffers[2] == nullptr) {
      throw corrupt().part("buffer 2").expected(last, " bytes").found("a null pointer");
    }
  }

  void check_views(const ArrowArray& array) const {
    const std::int64_t num_buffers = array.n_buffers - 3;
    const auto* sizes = static_cast<const std::int64_t*>(array.buffers[array.n_buffers - 1]);
    if (num_buffers > 0 && sizes == nullptr) {
      throw corrupt().part("lengths of the buffers of text").found("a null pointer");
    }
    const bool has_validity = array.null_count != 0 && array.buffers[0] != nullptr;
    const auto* bits = static_cast<const std::uint8_t*>(array.buffers[0]);
    for (std::int64_t i = array.offset; i < array.offset + array.length; ++i) {
      if (has_validity && (bits[i >> 3] >> (i & 7) & 1) == 0) continue;
      const View view = view_at(array, i);
      if (view.size >= 0 && view.size <= kInlineBytes) continue;
      const bool fits = view.size >= 0 && view.buffer >= 0 && view.buffer < num_buffers &&
                        view.offset >= 0 && array.buffers[2 + view.buffer] != nullptr &&
                        std::int64_t{view.offset} + view.size <= sizes[view.buffer];
      if (fits) continue;
      throw corrupt()
          .part("view ", i - array.offset)
          .expected("bytes within one of ", num_buffers, " buffers")
          .found(view.size, " bytes at ", view.offset, " of buffer ", view.buffer);
    }
  }

  /// True if a struct around value `i` is null.
  static bool is_in_null(std::int64_t i, const Enclosing* enclosing) {
    for (; enclosing != nullptr; enclosing = enclosing->outer) {
      i -= enclosing->rows.array->offset;
      if (i < 0 || i >= enclosing->rows.size) return false;
      if (!enclosing->rows.is_valid(i)) return true;
    }
    return false;
  }

  void check_indices(const ArrowArray& array, const ArrowType& type,
                     const Enclosing* enclosing) const {
    const ArrowSlice all = ArrowSlice::whole(array, type);
    const std::int64_t limit = array.dictionary->length;
    for (std::int64_t i = 0; i < array.length; ++i) {
      if (!all.is_valid(i)) continue;
      const std::int64_t index = all.index_at(i);
      if ((index >= 0 && index < limit) || is_in_null(i, enclosing)) continue;
      throw corrupt()
          .part("value ", i)
          .expected("an index in [0, ", limit, ") of the dictionary")
          .found(index);
    }
  }

  const std::string& where_;
  KeyPath path_;
};

}  // namespace

void check_arrow_array(const ArrowArray& array, const ArrowType& type, const std::string& where) {
  if (array.release == nullptr) {
    throw base::corrupt(where).expected("a batch").found("one that was released");
  }
  Checker(where).check(array, type, 0);
}

std::pair<std::int64_t, std::int64_t> ArrowSlice::range_at(std::int64_t i) const {
  const auto offset = [&](std::size_t buffer, std::int64_t at) {
    return type->is_large ? value_at<std::int64_t>(buffer, at)
                          : static_cast<std::int64_t>(value_at<std::int32_t>(buffer, at));
  };
  switch (type->kind) {
    case ArrowKind::fixed_list:
      return {(begin + i) * type->width, (begin + i + 1) * type->width};
    case ArrowKind::list_view: {
      const std::int64_t first = offset(1, i);
      const std::int64_t count = offset(2, i);
      if (first < 0 || count < 0 || first > kMaxLength || count > kMaxLength) return {-1, -1};
      return {first, first + count};
    }
    default:
      return {offset(1, i), offset(1, i + 1)};
  }
}

std::string_view ArrowSlice::text_at(std::int64_t i) const {
  if (type->kind == ArrowKind::fixed_bytes) {
    const auto width = static_cast<std::size_t>(type->width);
    const auto* bytes = static_cast<const char*>(array->buffers[1]);
    return width == 0
               ? std::string_view()
               : std::string_view(bytes + static_cast<std::size_t>(begin + i) * width, width);
  }
  if (type->kind == ArrowKind::text) {
    const auto [first, end] = range_at(i);
    if (first == end) return {};
    return {static_cast<const char*>(array->buffers[2]) + first,
            static_cast<std::size_t>(end - first)};
  }
  const View view = view_at(*array, begin + i);
  const auto num_bytes = static_cast<std::size_t>(view.size);
  if (view.size <= kInlineBytes) {
    return {static_cast<const char*>(array->buffers[1]) +
                static_cast<std::size_t>(begin + i) * kViewBytes + 4,
            num_bytes};
  }
  return {static_cast<const char*>(array->buffers[2 + view.buffer]) + view.offset, num_bytes};
}

std::int64_t ArrowSlice::index_at(std::int64_t i) const {
  // An index of dtype uint64 from 2^63 on becomes negative. check_arrow_array() rejects negative
  // indices, except those of nulls and in null structs.
  return integer_at(type->stored, number_at(i));
}

std::string ArrowSlice::decimal_at(std::int64_t i) const {
  // Little-endian words in two's complement.
  std::array<std::uint32_t, 8> words{};
  const auto width = static_cast<std::size_t>(type->width);
  std::memcpy(words.data(),
              static_cast<const std::byte*>(array->buffers[1]) +
                  static_cast<std::size_t>(begin + i) * width,
              width);
  const std::size_t count = width / 4;
  const bool negative = (words[count - 1] >> 31) != 0;
  if (negative) {
    std::uint64_t carry = 1;
    for (std::size_t k = 0; k < count; ++k) {
      carry += static_cast<std::uint32_t>(~words[k]);
      words[k] = static_cast<std::uint32_t>(carry);
      carry >>= 32;
    }
  }
  std::string digits;
  const auto any = [&] {
    return std::any_of(words.begin(), words.end(), [](auto w) { return w; });
  };
  while (any()) {
    std::uint64_t rest = 0;
    for (std::size_t k = count; k-- > 0;) {
      rest = rest << 32 | words[k];
      words[k] = static_cast<std::uint32_t>(rest / 10);
      rest %= 10;
    }
    digits.push_back(static_cast<char>('0' + rest));
  }
  const auto scale = static_cast<std::size_t>(std::max(type->scale, 0));
  while (digits.size() <= scale) digits.push_back('0');
  std::reverse(digits.begin(), digits.end());
  if (type->scale > 0) digits.insert(digits.size() - scale, 1, '.');
  if (type->scale < 0 && digits != "0") digits.append(static_cast<std::size_t>(-type->scale), '0');
  return negative ? "-" + digits : digits;
}

}  // namespace tenfold

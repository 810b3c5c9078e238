#include "formats/safetensors/header.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <optional>
#include <string_view>

#include <tenfold/error.hpp>
#include <tenfold/value.hpp>

#include "base/checked.hpp"
#include "base/fail.hpp"
#include "base/text.hpp"
#include "codecs/json/json.hpp"

namespace tenfold::detail::formats::safetensors {
namespace {

constexpr std::string_view kMetadata = "{\"__metadata__\":{";

constexpr std::uint64_t kOnes = 0x0101010101010101;
constexpr std::uint64_t kHighs = 0x8080808080808080;

/// True if all eight bytes are ASCII characters of at least 0x20, and none is a backslash.
bool is_plain_word(std::uint64_t word) noexcept {
  const std::uint64_t backslash = word ^ (kOnes * '\\');
  const std::uint64_t wrong =
      word | ((word - kOnes * 0x20) & ~word) | ((backslash - kOnes) & ~backslash);
  return (wrong & kHighs) == 0;
}

bool is_plain(std::string_view text) noexcept {
  std::uint64_t word = 0;
  while (text.size() >= sizeof word) {
    std::memcpy(&word, text.data(), sizeof word);
    if (!is_plain_word(word)) return false;
    text.remove_prefix(sizeof word);
  }
  word = kOnes * 'x';
  std::memcpy(&word, text.data(), text.size());
  return is_plain_word(word);
}

class Cursor {
 public:
  explicit Cursor(std::string_view text) : rest_(text) {}

  bool literal(std::string_view expected) noexcept {
    if (!rest_.starts_with(expected)) return false;
    rest_.remove_prefix(expected.size());
    return true;
  }

  /// Parses a JSON integer of at most 18 digits, without a sign.
  bool number(std::uint64_t& value) noexcept {
    constexpr std::size_t kMaxDigits = 18;
    std::size_t size = 0;
    value = 0;
    while (size < rest_.size() && rest_[size] >= '0' && rest_[size] <= '9') {
      if (size == kMaxDigits) return false;
      value = value * 10 + static_cast<std::uint64_t>(rest_[size] - '0');
      ++size;
    }
    if (size == 0 || (size > 1 && rest_[0] == '0')) return false;
    rest_.remove_prefix(size);
    return true;
  }

  /// Parses the rest of a string after its opening quote. Returns nullopt if the string has
  /// escapes, control characters or characters that are not ASCII, or no closing quote.
  std::optional<std::string_view> plain_string() noexcept {
    const std::size_t size = rest_.find('"');
    if (size == std::string_view::npos) return std::nullopt;
    const std::string_view value = rest_.substr(0, size);
    if (!is_plain(value)) return std::nullopt;
    rest_.remove_prefix(size + 1);
    return value;
  }

  bool only_blanks_left() const noexcept {
    return rest_.find_first_not_of(" \t\r\n") == std::string_view::npos;
  }

 private:
  std::string_view rest_;
};

bool parse_shape(Cursor& cursor, Header& header) {
  if (cursor.literal("]")) return true;
  do {
    std::uint64_t length = 0;
    if (!cursor.number(length)) return false;
    header.shapes.push_back(static_cast<std::int64_t>(length));
  } while (cursor.literal(","));
  return cursor.literal("]");
}

bool parse_entry(Cursor& cursor, Header& header) {
  if (!cursor.literal("\"")) return false;
  const auto name = cursor.plain_string();
  if (!name || *name == "__metadata__" || !cursor.literal(":{\"dtype\":\"")) return false;
  const auto dtype_name = cursor.plain_string();
  if (!dtype_name || !cursor.literal(",\"shape\":[")) return false;
  const auto dtype = dtype_of_name(*dtype_name);
  // 4-bit types need a conversion of the shape. They are rare, so the general parser handles them.
  if (!dtype || *dtype == DType::float4_e2m1fn_x2) return false;
  Header::Entry entry;
  entry.dtype = *dtype;
  entry.shape_at = static_cast<std::uint32_t>(header.shapes.size());
  if (!parse_shape(cursor, header)) return false;
  entry.rank = static_cast<std::uint32_t>(header.shapes.size() - entry.shape_at);
  if (!cursor.literal(",\"data_offsets\":[") || !cursor.number(entry.begin) ||
      !cursor.literal(",") || !cursor.number(entry.end) || !cursor.literal("]}")) {
    return false;
  }
  entry.name_at = static_cast<std::uint32_t>(header.names.size());
  entry.name_size = static_cast<std::uint32_t>(name->size());
  header.names += *name;
  header.entries.push_back(entry);
  const auto position = static_cast<std::uint32_t>(header.entries.size() - 1);
  const auto name_of = [&header](std::uint32_t i) { return header.name(i); };
  return header.index.insert(*name, position, name_of) == KeyIndex::kNone;
}

/// Returns the offset of the first tensor in a header that starts as the Rust library safetensors
/// writes it: after "{", or after the comma that follows a leading "__metadata__" object. Returns
/// npos if the header starts in any other way, or has no tensor after this object.
std::size_t compact_entries_at(std::string_view text) noexcept {
  if (!text.starts_with(kMetadata)) return text.starts_with("{\"") ? 1 : std::string_view::npos;
  bool in_string = false;
  for (std::size_t i = kMetadata.size(); i < text.size(); ++i) {
    if (in_string) {
      if (text[i] == '\\') {
        ++i;
      } else if (text[i] == '"') {
        in_string = false;
      }
    } else if (text[i] == '"') {
      in_string = true;
    } else if (text[i] == '}') {
      return text.substr(i + 1).starts_with(",\"") ? i + 2 : std::string_view::npos;
    }
  }
  return std::string_view::npos;
}

/// Appends the tensors of `text` to `header` if each has the form in which the Rust library
/// safetensors writes it, `"name":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}` without a blank
/// or an escape, and only "}" and blanks follow. Returns false otherwise, and for names that are
/// not ASCII or the dtype F4. Then `header` must be discarded: the general parser accepts more, and
/// reports errors. This function takes a quarter of the time of the general parser. It accepts all
/// files of the library and of tenfold, except those with a name that is not ASCII or needs
/// escapes, or with a tensor of dtype F4.
bool parse_compact_entries(std::string_view text, Header& header) {
  Cursor cursor(text);
  do {
    if (!parse_entry(cursor, header)) return false;
  } while (cursor.literal(","));
  return cursor.literal("}") && cursor.only_blanks_left();
}

constexpr std::uint64_t kLengthBytes = 8;

}  // namespace

std::uint32_t Header::find(std::string_view wanted) const {
  return index.find(wanted, [this](std::uint32_t i) { return name(i); });
}

const std::string* Header::metadata_value(std::string_view key) const {
  const auto found = metadata.find(key);
  return found == metadata.end() ? nullptr : &found->second;
}

std::vector<std::uint32_t> Header::file_order() const {
  std::vector<std::uint32_t> order(entries.size());
  std::iota(order.begin(), order.end(), 0U);
  const auto before = [this](std::uint32_t a, std::uint32_t b) {
    const Entry& x = entries[a];
    const Entry& y = entries[b];
    return x.begin != y.begin ? x.begin < y.begin : x.end < y.end;
  };
  // Most writers list the tensors in the order of their bytes, so sorting is rarely needed.
  if (!std::is_sorted(order.begin(), order.end(), before)) {
    std::stable_sort(order.begin(), order.end(), before);
  }
  return order;
}

namespace {

/// Fills a Header from the events of its JSON text.
class HeaderHandler final : public codecs::JsonHandler {
 public:
  HeaderHandler(Header& header, std::string_view where) : header_(header), where_(where) {}

  void null() override {
    if (state_ == State::metadata_value) {
      state_ = State::names;  // like the Rust library, accept `"__metadata__": null`
      return;
    }
    scalar("null");
  }
  void boolean(bool value) override { scalar(value ? "true" : "false"); }
  void big_integer(std::string_view digits) override {
    if (in_numbers()) {
      fail(field(), digits.starts_with('-') ? "is negative" : "does not fit 63 bits",
           "an integer from 0", std::string(digits));
    }
    scalar(digits);
  }
  void number(double value) override {
    if (in_numbers()) {
      fail(field(), "is not an integer", "an integer from 0", to_json(Value(value)));
    }
    scalar("a floating-point number");
  }
  void integer(std::int64_t value) override {
    if (state_ == State::shape) {
      if (value < 0) fail("shape", "is negative", "lengths from 0", std::to_string(value));
      header_.shapes.push_back(value);
    } else if (state_ == State::offsets) {
      if (value < 0) fail("data_offsets", "is negative", "offsets from 0", std::to_string(value));
      if (num_offsets_ == 2) fail("data_offsets", "is too long", "2 offsets", "more");
      offsets_[num_offsets_++] = static_cast<std::uint64_t>(value);
    } else {
      scalar("a number");
    }
  }
  void string(std::string_view value) override {
    switch (state_) {
      case State::dtype:
        set_dtype(value);
        state_ = State::entry;
        break;
      case State::metadata_text:
        header_.metadata.insert_or_assign(metadata_key_, std::string(value));
        state_ = State::metadata;
        break;
      default:
        scalar("a string");
    }
  }

  void begin_object() override {
    switch (state_) {
      case State::start:
        state_ = State::names;
        break;
      case State::metadata_value:
        state_ = State::metadata;
        break;
      case State::entry_value:
        begin_entry();
        break;
      case State::skip:
        ++skip_depth_;
        break;
      default:
        unexpected("an object");
    }
  }
  void key(std::string_view value) override {
    switch (state_) {
      case State::names:
        begin_name(value);
        break;
      case State::metadata:
        if (header_.metadata.contains(value)) {
          fail_header(base::quote(value) + " in \"__metadata__\"", "is duplicated", "it once");
        }
        metadata_key_ = value;
        state_ = State::metadata_text;
        break;
      case State::entry:
        begin_field(value);
        break;
      default:
        break;  // inside a skipped value
    }
  }
  void end_object() override {
    switch (state_) {
      case State::names:
        state_ = State::end;
        break;
      case State::metadata:
        state_ = State::names;
        break;
      case State::entry:
        end_entry();
        break;
      default:
        leave_skipped();
    }
  }
  void begin_array() override {
    switch (state_) {
      case State::shape_value:
        state_ = State::shape;
        break;
      case State::offsets_value:
        state_ = State::offsets;
        break;
      case State::skip:
        ++skip_depth_;
        break;
      default:
        unexpected("an array");
    }
  }
  void end_array() override {
    if (state_ == State::shape || state_ == State::offsets) {
      state_ = State::entry;
    } else {
      leave_skipped();
    }
  }

 private:
  enum class State : std::uint8_t {
    start,
    names,           ///< in the outer object, before a name
    metadata_value,  ///< after "__metadata__"
    metadata,        ///< in the metadata, before a key
    metadata_text,   ///< after a key of the metadata
    entry_value,     ///< after a tensor's name
    entry,           ///< in a tensor's object, before a field
    dtype,
    shape_value,
    shape,
    offsets_value,
    offsets,
    skip,  ///< in the value of an unknown field
    end,
  };

  bool in_numbers() const { return state_ == State::shape || state_ == State::offsets; }
  std::string_view field() const { return state_ == State::shape ? "shape" : "data_offsets"; }

  [[noreturn]] void fail_header(std::string_view part, std::string_view what,
                                std::string_view expected, std::string_view found = "two") const {
    throw base::corrupt(where_)
        .part("header")
        .problem(part, " ", what)
        .expected(expected)
        .found(found);
  }
  [[noreturn]] void fail(std::string_view part, std::string_view what, std::string_view expected,
                         std::string_view found) const {
    throw base::corrupt(where_)
        .part("tensor ", base::quote(name_))
        .problem(part, " ", what)
        .expected(expected)
        .found(found);
  }

  /// Handles a scalar: ignores the value of an unknown field, and throws in any other place.
  void scalar(std::string_view found) {
    if (state_ == State::skip) {
      if (skip_depth_ == 0) state_ = State::entry;
      return;
    }
    unexpected(found);
  }

  [[noreturn]] void unexpected(std::string_view found) const {
    switch (state_) {
      case State::metadata_value:
        fail_header("\"__metadata__\"", "has the wrong type", "an object of strings", found);
      case State::metadata_text:
        fail_header(base::quote(metadata_key_) + " in \"__metadata__\"", "has the wrong type",
                    "a string", found);
      case State::entry_value:
        fail("its value", "has the wrong type", "an object", found);
      case State::dtype:
        fail("dtype", "has the wrong type", "a string", found);
      case State::shape_value:
        fail("shape", "has the wrong type", "an array of integers", found);
      case State::offsets_value:
        fail("data_offsets", "has the wrong type", "an array of two integers", found);
      case State::shape:
      case State::offsets:
        fail(field(), "has an item of the wrong type", "an integer", found);
      default:
        fail_header("the document", "has the wrong type", "an object", found);
    }
  }

  void begin_name(std::string_view value) {
    if (value == "__metadata__") {
      if (seen_metadata_) fail_header("\"__metadata__\"", "is duplicated", "it once");
      seen_metadata_ = true;
      state_ = State::metadata_value;
      return;
    }
    name_ = value;
    // The parser has checked that the text is UTF-8. Escapes can still produce a lone surrogate,
    // whose first byte is 0xED.
    if (value.find('\xED') != std::string_view::npos && !base::is_utf8(value)) {
      fail("its name", "is not valid UTF-8", "UTF-8", "a lone surrogate");
    }
    state_ = State::entry_value;
  }

  void begin_entry() {
    state_ = State::entry;
    seen_dtype_ = seen_shape_ = seen_offsets_ = false;
    num_offsets_ = 0;
    shape_at_ = header_.shapes.size();
  }

  void begin_field(std::string_view value) {
    const auto once = [&](bool& seen, State next) {
      if (seen) fail(value, "is duplicated", "it once", "two");
      seen = true;
      state_ = next;
    };
    if (value == "dtype") {
      once(seen_dtype_, State::dtype);
    } else if (value == "shape") {
      once(seen_shape_, State::shape_value);
    } else if (value == "data_offsets") {
      once(seen_offsets_, State::offsets_value);
    } else {
      state_ = State::skip;
      skip_depth_ = 0;
    }
  }

  void leave_skipped() {
    if (--skip_depth_ == 0) state_ = State::entry;
  }

  void set_dtype(std::string_view value) {
    const std::optional<DType> dtype = dtype_of_name(value);
    if (!dtype) {
      throw base::unsupported(where_)
          .part("tensor ", base::quote(name_))
          .problem("unknown dtype")
          .expected("one that torch has")
          .found(base::quote(value));
    }
    dtype_ = *dtype;
  }

  void end_entry() {
    if (!seen_dtype_) fail("dtype", "is missing", "a string", "none");
    if (!seen_shape_) fail("shape", "is missing", "an array of integers", "none");
    if (!seen_offsets_) fail("data_offsets", "is missing", "an array of two integers", "none");
    if (num_offsets_ != 2) {
      fail("data_offsets", "is too short", "2 offsets", std::to_string(num_offsets_));
    }
    if (dtype_ == DType::float4_e2m1fn_x2) halve_last();
    Header::Entry entry;
    entry.begin = offsets_[0];
    entry.end = offsets_[1];
    entry.name_at = static_cast<std::uint32_t>(header_.names.size());
    entry.name_size = static_cast<std::uint32_t>(name_.size());
    entry.shape_at = static_cast<std::uint32_t>(shape_at_);
    entry.rank = static_cast<std::uint32_t>(header_.shapes.size() - shape_at_);
    entry.dtype = dtype_;
    header_.names += name_;
    header_.entries.push_back(entry);
    const auto position = static_cast<std::uint32_t>(header_.entries.size() - 1);
    const auto name_of = [this](std::uint32_t i) { return header_.name(i); };
    if (header_.index.insert(name_, position, name_of) != KeyIndex::kNone) {
      fail("its name", "is duplicated", "it once", "two");
    }
    state_ = State::names;
  }

  /// Halves the last dimension: safetensors counts 4-bit numbers, torch counts pairs of them.
  void halve_last() {
    if (header_.shapes.size() == shape_at_ || header_.shapes.back() % 2 != 0) {
      const auto shape = std::span(header_.shapes).subspan(shape_at_);
      fail("shape", "does not fill whole bytes", "an even last dimension for F4",
           base::list_text(shape));
    }
    header_.shapes.back() /= 2;
  }

  Header& header_;
  std::string_view where_;
  State state_ = State::start;
  std::string name_;
  std::string metadata_key_;
  std::size_t skip_depth_ = 0;
  std::size_t shape_at_ = 0;
  std::array<std::uint64_t, 2> offsets_{};
  std::size_t num_offsets_ = 0;
  DType dtype_ = DType::float32;
  bool seen_metadata_ = false;
  bool seen_dtype_ = false;
  bool seen_shape_ = false;
  bool seen_offsets_ = false;
};

Error fail_tensor(std::string_view where, std::string_view name) {
  return base::corrupt(where).part("tensor ", base::quote(name));
}

/// Returns the size of a tensor in bytes, or nullopt on overflow. A length of 0 counts as 1 in the
/// check of overflow, because strides are computed from the other lengths.
std::optional<std::uint64_t> size_of(DType dtype, std::span<const std::int64_t> shape) {
  std::uint64_t extent = 1;
  bool is_empty = false;
  for (const std::int64_t length : shape) {
    if (length == 0) {
      is_empty = true;
      continue;
    }
    const auto product = base::checked_mul(extent, static_cast<std::uint64_t>(length));
    if (!product || *product > std::numeric_limits<std::int64_t>::max()) return std::nullopt;
    extent = *product;
  }
  return is_empty ? 0 : base::checked_mul(extent, itemsize(dtype));
}

/// Checks the invariants of the format. On success, every range can be used without checks.
void validate(const Header& header, std::string_view where) {
  std::uint64_t expected_begin = 0;
  for (const std::uint32_t i : header.file_order()) {
    const Header::Entry& e = header.entries[i];
    if (e.begin != expected_begin) {
      throw fail_tensor(where, header.name(i))
          .problem("data_offsets must be contiguous")
          .expected("begin ", expected_begin)
          .found(e.begin);
    }
    if (e.end < e.begin) {
      throw fail_tensor(where, header.name(i))
          .problem("data_offsets end before they begin")
          .expected("end at least ", e.begin)
          .found(e.end);
    }
    const std::optional<std::uint64_t> size_bytes = size_of(e.dtype, header.shape(i));
    if (!size_bytes) {
      throw fail_tensor(where, header.name(i))
          .problem("shape is too large")
          .expected("at most 2^63 - 1 bytes")
          .found(base::list_text(header.shape(i)));
    }
    if (*size_bytes != e.end - e.begin) {
      throw fail_tensor(where, header.name(i))
          .problem("data_offsets do not fit ", *name_of_dtype(e.dtype), " ",
                   base::list_text(header.shape(i)))
          .expected(*size_bytes, " bytes")
          .found(e.end - e.begin);
    }
    // e.begin <= data_bytes holds, because ranges are contiguous and the previous one fitted.
    if (!base::range_fits(e.begin, *size_bytes, header.data_bytes)) {
      throw fail_tensor(where, header.name(i))
          .problem("data reaches past the end of the file")
          .expected("at most ", header.data_bytes - e.begin, " bytes")
          .found(*size_bytes)
          .remedy("the file may be truncated");
    }
    expected_begin = e.end;
  }
  if (expected_begin != header.data_bytes) {
    throw base::corrupt(where)
        .part("data")
        .problem("bytes after the last tensor")
        .expected(expected_begin, " bytes of data")
        .found(header.data_bytes);
  }
}

Header empty_header(std::size_t text_bytes, std::uint64_t data_bytes) {
  Header header;
  header.data_offset = kLengthBytes + text_bytes;
  header.data_bytes = data_bytes;
  // An entry usually takes about 80 characters. If the average is at least 64, one allocation is
  // sufficient for all entries.
  const std::size_t expected_entries = text_bytes / 64 + 1;
  header.entries.reserve(expected_entries);
  header.shapes.reserve(expected_entries * 2);
  header.names.reserve(text_bytes / 2);
  header.index.reserve(expected_entries);
  return header;
}

}  // namespace

Header parse_header(std::string_view text, std::uint64_t data_bytes, std::string_view where) {
  const base::Where header_where(std::string(where), "header");
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || text[first] != '{') {
    throw base::corrupt(header_where)
        .problem("not a JSON object")
        .expected("\"{\"")
        .found((first == std::string_view::npos ? "nothing" : base::quote(text.substr(first, 1))));
  }
  Header header = empty_header(text.size(), data_bytes);
  const std::size_t entries_at = compact_entries_at(text);
  bool parsed = false;
  if (entries_at != std::string_view::npos) {
    if (entries_at > 1) {
      // Parse the metadata as a separate document.
      HeaderHandler handler(header, where);
      codecs::parse_json(std::string(text.substr(0, entries_at - 1)) + "}", header_where, handler);
    }
    parsed = parse_compact_entries(text.substr(entries_at), header);
  }
  if (!parsed) {
    header = empty_header(text.size(), data_bytes);
    HeaderHandler handler(header, where);
    codecs::parse_json(text, header_where, handler);
  }
  validate(header, where);
  return header;
}

std::string read_header_bytes(const os::File& file, std::uint64_t file_bytes) {
  const std::string& where = file.display();
  if (file_bytes < kLengthBytes) {
    throw base::corrupt(where)
        .part("header length")
        .problem("the file is too short")
        .expected("at least 8 bytes")
        .found(file_bytes);
  }
  std::array<std::byte, kLengthBytes> length_bytes;
  file.read_at(0, length_bytes);
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    length |= std::to_integer<std::uint64_t>(length_bytes[i]) << (8 * i);
  }
  if (length > kMaxHeaderBytes) {
    throw base::corrupt(where)
        .part("header")
        .problem("too long")
        .expected("at most ", kMaxHeaderBytes, " bytes")
        .found(length);
  }
  if (length > file_bytes - kLengthBytes) {
    throw base::corrupt(where)
        .part("header")
        .problem("reaches past the end of the file")
        .expected("at most ", file_bytes - kLengthBytes, " bytes")
        .found(length)
        .remedy("the file may be truncated");
  }
  std::string bytes(kLengthBytes + length, '\0');
  file.read_at(0, std::as_writable_bytes(std::span(bytes)));
  // The length may have changed between the two reads: use the one that was checked.
  std::memcpy(bytes.data(), length_bytes.data(), kLengthBytes);
  return bytes;
}

}  // namespace tenfold::detail::formats::safetensors

#include "formats/safetensors/header_compact.hpp"

#include <cstdint>
#include <cstring>
#include <optional>

namespace tenfold::detail::formats::safetensors {
namespace {

constexpr std::string_view kMetadata = "{\"__metadata__\":{";

constexpr std::uint64_t kOnes = 0x0101010101010101;
constexpr std::uint64_t kHighs = 0x8080808080808080;

/// True if none of the eight bytes is a control character, a backslash, or beyond ASCII.
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

  /// Decimal digits as JSON writes an integer, below 10^18.
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

  /// A string of printable ASCII without escapes, after its opening quote.
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
  // 4-bit types are counted otherwise, and rare.
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

}  // namespace

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

bool parse_compact_entries(std::string_view text, Header& header) {
  Cursor cursor(text);
  do {
    if (!parse_entry(cursor, header)) return false;
  } while (cursor.literal(","));
  return cursor.literal("}") && cursor.only_blanks_left();
}

}  // namespace tenfold::detail::formats::safetensors

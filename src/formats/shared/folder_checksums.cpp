#include "formats/shared/folder_checksums.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include <tenfold/error.hpp>

#include "base/checked.hpp"
#include "base/fail.hpp"
#include "base/hash/checksum.hpp"

namespace tenfold::detail::formats {
namespace {

constexpr std::string_view kLastWord = "xxh3 ";
constexpr std::size_t kHexDigits = 16;
constexpr char kSilent = '#';
constexpr std::string_view kBox = "box";

std::string last_line(std::string_view before) {
  return std::string(kLastWord) + base::hex16(base::xxh3(std::as_bytes(std::span(before)))) + "\n";
}

/// Returns the text before the first space, and removes that text and the space from `text`.
/// Returns "" if there is no space.
std::string_view take_word(std::string_view& text) {
  const std::size_t blank = text.find(' ');
  if (blank == std::string_view::npos) return {};
  const std::string_view word = text.substr(0, blank);
  text.remove_prefix(blank + 1);
  return word;
}

bool parse_number(std::string_view word, int base, std::uint64_t& value) {
  const auto parsed = std::from_chars(word.data(), word.data() + word.size(), value, base);
  return !word.empty() && parsed.ec == std::errc() && parsed.ptr == word.data() + word.size();
}

/// True for a relative path such as "a/b" in which no component is empty, "." or "..", or contains
/// a NUL.
bool stays_below(std::string_view path) {
  while (true) {
    const std::size_t slash = path.find('/');
    const std::string_view part = path.substr(0, slash);
    if (part.empty() || part == "." || part == "..") return false;
    if (part.find('\0') != std::string_view::npos) return false;
    if (slash == std::string_view::npos) return true;
    path.remove_prefix(slash + 1);
  }
}

/// Parses the line of a box. `text` is the part of the line after "box".
ChecksumLine parse_box_line(std::string_view checksum, std::string_view text,
                            const std::string& where, std::size_t number) {
  const auto shape = parse_numbers(take_word(text));
  const auto offsets = parse_numbers(take_word(text));
  const auto sizes = parse_numbers(take_word(text));
  std::optional<ByteBox> box;
  if (shape && offsets && sizes) box = byte_box(*shape, *offsets, *sizes);
  std::uint64_t value = 0;
  if (!box || checksum.size() != kHexDigits || !parse_number(checksum, 16, value) ||
      !stays_below(text)) {
    throw base::corrupt(where)
        .part("line ", number)
        .expected(
            "\"<checksum> box <shape> <offsets> <sizes> <path>\" of a box within the shape and "
            "with a path below the folder")
        .found("something else");
  }
  return line_of_box(value, std::move(*box), std::string(text));
}

ChecksumLine parse_line(std::string_view text, const std::string& where, std::size_t number) {
  ChecksumLine line;
  const std::string_view checksum = take_word(text);
  const std::string_view offset = take_word(text);
  if (offset == kBox) return parse_box_line(checksum, text, where, number);
  const std::string_view length = take_word(text);
  const bool good = checksum.size() == kHexDigits && parse_number(checksum, 16, line.checksum) &&
                    parse_number(offset, 10, line.offset_bytes) &&
                    parse_number(length, 10, line.size_bytes) &&
                    base::checked_add(line.offset_bytes, line.size_bytes) && stays_below(text);
  if (!good) {
    throw base::corrupt(where)
        .part("line ", number)
        .expected("\"<checksum> <offset> <length> <path>\" with a path below the folder")
        .found("something else");
  }
  line.path.assign(text);
  return line;
}

}  // namespace

std::string checksums_text(const std::vector<ChecksumLine>& lines) {
  std::string text;
  for (const ChecksumLine& line : lines) {
    text.append(base::hex16(line.checksum)).append(" ");
    if (line.box) {
      text.append(kBox).append(" ").append(numbers_text(line.box->shape)).append(" ");
      text.append(numbers_text(line.box->offsets)).append(" ");
      text.append(numbers_text(line.box->sizes)).append(" ").append(line.path).append("\n");
      continue;
    }
    text.append(std::to_string(line.offset_bytes)).append(" ");
    text.append(std::to_string(line.size_bytes)).append(" ").append(line.path).append("\n");
  }
  return text + last_line(text);
}

void append_lines(std::vector<ChecksumLine>& lines, const std::string& path,
                  std::uint64_t size_bytes, std::span<const std::uint64_t> checksums,
                  std::uint64_t offset_bytes) {
  for (const std::uint64_t checksum : checksums) {
    const std::uint64_t length = std::min(base::kChecksumBlockBytes, size_bytes - offset_bytes);
    lines.push_back({checksum, offset_bytes, length, path});
    offset_bytes += length;
  }
}

ChecksumLine line_of_box(std::uint64_t checksum, ByteBox box, const std::string& path) {
  ChecksumLine line{checksum, box.begin(), box.end() - box.begin(), path};
  if (!box.is_contiguous()) line.box = std::make_shared<const ByteBox>(std::move(box));
  return line;
}

std::vector<ChecksumLine> parse_checksums(std::string_view text, const std::string& where) {
  // Check the last line first, because it covers all others.
  const std::size_t newline =
      text.size() < 2 ? std::string_view::npos : text.rfind('\n', text.size() - 2);
  const std::size_t body_size = newline == std::string_view::npos ? 0 : newline + 1;
  std::string_view body = text.substr(0, body_size);
  if (text.substr(body_size) != last_line(body)) {
    throw base::corrupt(where)
        .part("last line")
        .expected("the checksum of the lines before")
        .found("another")
        .remedy("the file is damaged");
  }
  std::vector<ChecksumLine> lines;
  for (std::size_t number = 1; !body.empty(); ++number) {
    const std::size_t end = body.find('\n');
    if (body[0] != kSilent) lines.push_back(parse_line(body.substr(0, end), where, number));
    body.remove_prefix(end + 1);
  }
  return lines;
}

bool silence_lines(std::string& text, const std::string& where,
                   const std::function<bool(std::string_view path)>& concerns) {
  static_cast<void>(parse_checksums(text, where));
  const std::size_t body_size = text.rfind('\n', text.size() - 2) + 1;
  bool silenced = false;
  for (std::size_t begin = 0; begin < body_size;) {
    const std::size_t end = text.find('\n', begin);
    if (text[begin] != kSilent) {
      const std::string_view line = std::string_view(text).substr(begin, end - begin);
      if (concerns(parse_line(line, where, 0).path)) {
        text[begin] = kSilent;
        silenced = true;
      }
    }
    begin = end + 1;
  }
  if (silenced) text.replace(body_size, std::string::npos, last_line(text.substr(0, body_size)));
  return silenced;
}

}  // namespace tenfold::detail::formats

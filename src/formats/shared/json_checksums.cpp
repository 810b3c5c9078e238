#include "formats/shared/json_checksums.hpp"

#include <algorithm>
#include <charconv>
#include <span>

#include "base/fail.hpp"
#include "base/hash/checksum.hpp"
#include "formats/shared/problem.hpp"

namespace tenfold::detail::formats {
namespace {

constexpr std::size_t kDigits = 16;
constexpr std::string_view kMember = "tenfold_xxh3";

/// Returns the offset of the first character of the string that is the value of the member whose
/// name, without quotes, is at `at`. Returns npos if there is no such member, its value is not a
/// string, or fewer than 16 bytes follow the string's opening quote.
std::size_t value_of_member_at(std::string_view json, std::size_t at,
                               std::string_view member) noexcept {
  // A quote inside a string has a backslash before it, and no letter follows a quote that ends a
  // string. So a quote, the name, a quote and a colon are the start of a member.
  const std::string_view after = json.substr(at + member.size());
  if (at == 0 || json[at - 1] != '"' || !after.starts_with("\":")) return std::string_view::npos;
  if (at > 1 && json[at - 2] == '\\') return std::string_view::npos;
  const std::size_t value = json.find_first_not_of(' ', at + member.size() + 2);
  if (value == std::string_view::npos || json[value] != '"' || json.size() - value < 1 + kDigits) {
    return std::string_view::npos;
  }
  return value + 1;
}

}  // namespace

std::optional<std::uint64_t> parse_hex16(std::string_view digits) noexcept {
  std::uint64_t value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  const bool whole = error == std::errc() && end == digits.data() + digits.size();
  // Refuse upper case, so that a flipped bit, such as one that turns "a" into "A", always changes
  // the number or fails.
  const bool has_upper = std::ranges::any_of(digits, [](char c) { return c >= 'A' && c <= 'F'; });
  if (!whole || digits.size() != kDigits || has_upper) return std::nullopt;
  return value;
}

std::string blank_checksum_text(std::uint64_t blocks) {
  std::string text(kDigits, '0');
  if (blocks > 0) text += ' ' + std::string(static_cast<std::size_t>(blocks) * kDigits, '0');
  return text;
}

std::size_t find_checksums(std::string_view json, std::string_view member) noexcept {
  for (std::size_t at = json.find(member); at != std::string_view::npos;
       at = json.find(member, at + 1)) {
    const std::size_t value = value_of_member_at(json, at, member);
    if (value != std::string_view::npos) return value;
  }
  return std::string_view::npos;
}

std::size_t find_last_checksums(std::string_view json) noexcept {
  for (std::size_t at = json.rfind(kMember); at != std::string_view::npos && at > 0;
       at = json.rfind(kMember, at - 1)) {
    const std::size_t value = value_of_member_at(json, at, kMember);
    if (value != std::string_view::npos) return value;
  }
  return std::string_view::npos;
}

std::uint64_t hash_with_blank_digits(std::string text, std::size_t digits_at) {
  text.replace(digits_at, kDigits, kDigits, '0');
  return base::xxh3(std::as_bytes(std::span(text)));
}

void fill_checksums(std::string& document, std::size_t digits_at,
                    const std::vector<std::uint64_t>& blocks) {
  std::size_t at = digits_at + kDigits + 1;
  for (const std::uint64_t checksum : blocks) {
    document.replace(at, kDigits, base::hex16(checksum));
    at += kDigits;
  }
  document.replace(digits_at, kDigits, base::hex16(hash_with_blank_digits(document, digits_at)));
}

void check_document_hash(const ChecksummedDocument& document, VerifyReport& report) {
  const auto stored = parse_hex16(document.text.substr(0, kDigits));
  ++report.num_checksums;
  if (document.digits_at == std::string::npos || !stored) {
    report.problems.push_back(problem_of(base::corrupt({document.path, document.member_part})
                                             .problem("cannot be read")
                                             .expected("hexadecimal digits as tenfold writes them")
                                             .found("other characters")
                                             .remedy("another tool may have changed the file")));
  } else if (const std::uint64_t found = hash_with_blank_digits(document.bytes, document.digits_at);
             found != *stored) {
    report.problems.push_back(
        problem_of(base::corrupt({document.path, document.document_part})
                       .problem("the checksum of ", document.bytes.size(), " bytes at offset ",
                                document.offset_bytes, " differs")
                       .expected(base::hex16(*stored))
                       .found(base::hex16(found))
                       .remedy("the file is damaged or was changed")));
  }
}

std::optional<std::vector<std::uint64_t>> check_document(const ChecksummedDocument& document,
                                                         VerifyReport& report) {
  // Compute the size without blank_checksum_text(): a sparse file can claim so many blocks that the
  // text would not fit in memory.
  const std::uint64_t expected_size =
      kDigits + (document.num_blocks > 0 ? 1 + document.num_blocks * kDigits : 0);
  if (document.text.size() != expected_size) {
    report.problems.push_back(problem_of(base::corrupt({document.path, document.member_part})
                                             .problem("does not fit the tensors")
                                             .expected(expected_size, " characters")
                                             .found(document.text.size())
                                             .remedy("another tool may have changed the file")));
    return std::nullopt;
  }
  check_document_hash(document, report);
  std::vector<std::uint64_t> blocks;
  for (std::size_t at = kDigits + 1; at < document.text.size(); at += kDigits) {
    blocks.push_back(parse_hex16(document.text.substr(at, kDigits)).value_or(0));
  }
  report.num_checksums += document.num_blocks;
  return blocks;
}

}  // namespace tenfold::detail::formats

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/io.hpp>

namespace tenfold::detail::formats {

// Checksums as a string in the file's own JSON, for formats that have no other place for them: 16
// hexadecimal digits of the hash of the document (with these digits as zeros), a space, and 16
// digits for each 16 MiB block of each tensor in file order.

// The member with this string is called "tenfold_xxh3".

/// Number of checksums of a tensor of that size.
std::uint64_t num_checksum_blocks(std::uint64_t size_bytes) noexcept;

/// The string for that many blocks, with zeros as digits.
std::string blank_checksum_text(std::uint64_t blocks);

/// Offset of that member's string value in a JSON text, if it has space for 16 digits; npos
/// otherwise.
std::size_t find_checksums(std::string_view json,
                           std::string_view member = "tenfold_xxh3") noexcept;

/// Parses 16 hexadecimal digits as base::hex16() writes them; empty for anything else.
std::optional<std::uint64_t> parse_hex16(std::string_view digits) noexcept;

/// XXH3 of `text` with the 16 digits at `digits_at` replaced by zeros.
std::uint64_t hash_with_blank_digits(std::string text, std::size_t digits_at);

/// Fills the checksums of all blocks, and then that of the document itself, into the space that
/// blank_checksum_text() reserved.
void fill_checksums(std::string& document, const std::vector<std::uint64_t>& blocks);

/// A document and the checksum string found in it.
struct ChecksummedDocument {
  std::string path;              ///< of the file
  std::string member_part;       ///< names the member in reports
  std::string document_part;     ///< names the document
  std::uint64_t offset_bytes;    ///< of the document in the file
  std::string bytes;             ///< of the document
  std::string_view text;         ///< the member's value
  std::uint64_t num_blocks = 0;  ///< number of blocks of its tensors
};

/// Compares the document with its checksum, the first digits of `member`'s string, and reports a
/// difference.
void check_document_hash(const ChecksummedDocument& document, std::string_view member,
                         VerifyReport& report);

/// Compares the document with its checksum, and adds differences and the number of checksums to the
/// report. Returns the checksums of the blocks; empty if the string does not match the tensors.
std::optional<std::vector<std::uint64_t>> check_document(const ChecksummedDocument& document,
                                                         VerifyReport& report);

}  // namespace tenfold::detail::formats

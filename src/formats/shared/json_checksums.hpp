#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/io.hpp>

namespace tenfold::detail::formats {

// Checksums as a string in the JSON document of a file, for formats that cannot store them
// elsewhere: 16 hexadecimal digits of the XXH3 of the document (with these digits as zeros), a
// space, and 16 digits for each 16 MiB block of each tensor in file order. Without blocks, there is
// no space. The member with this string is called "tenfold_xxh3".

/// Returns the string for `blocks` blocks, with zeros in place of all digits.
std::string blank_checksum_text(std::uint64_t blocks);

/// Returns the offset in a JSON text of the first digit in the value of `member`. Returns npos if
/// there is no such member whose value is a string. If there are several, the first one counts:
/// tenfold writes it before the tensors, and a tensor may have the name "tenfold_xxh3", too.
std::size_t find_checksums(std::string_view json,
                           std::string_view member = "tenfold_xxh3") noexcept;

/// Like find_checksums() for "tenfold_xxh3", but the last such member counts: for documents in
/// which the checksums follow members with arbitrary keys.
std::size_t find_last_checksums(std::string_view json) noexcept;

/// Parses 16 hexadecimal digits as base::hex16() writes them. Returns nullopt for any other string.
std::optional<std::uint64_t> parse_hex16(std::string_view digits) noexcept;

/// Returns the XXH3 of `text` with the 16 digits at `digits_at` replaced by zeros.
std::uint64_t hash_with_blank_digits(std::string text, std::size_t digits_at);

/// Fills in the digits of blank_checksum_text(), which begin at `digits_at` in the document: first
/// the checksums of all blocks, then that of the document itself.
void fill_checksums(std::string& document, std::size_t digits_at,
                    const std::vector<std::uint64_t>& blocks);

/// A document and the checksum string found in it.
struct ChecksummedDocument {
  std::string path;              ///< of the file
  std::string member_part;       ///< names the member in reports
  std::string document_part;     ///< names the document
  std::uint64_t offset_bytes;    ///< of the document in the file
  std::string bytes;             ///< of the document
  std::string_view text;         ///< the member's value
  std::size_t digits_at;         ///< offset of `text` in `bytes`; npos if it was not found
  std::uint64_t num_blocks = 0;  ///< number of blocks of its tensors
};

/// Compares the document with its checksum, the first 16 digits of the member's text. Adds a
/// problem to the report if they differ, or if the digits were not found or cannot be parsed. Adds
/// 1 to report.num_checksums.
void check_document_hash(const ChecksummedDocument& document, VerifyReport& report);

/// Calls check_document_hash(), and adds the number of blocks to report.num_checksums. Returns the
/// checksums of the blocks, with 0 for a block whose digits cannot be parsed. If the length of the
/// member's text does not match `num_blocks`, reports only this problem and returns nullopt.
std::optional<std::vector<std::uint64_t>> check_document(const ChecksummedDocument& document,
                                                         VerifyReport& report);

}  // namespace tenfold::detail::formats

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "codecs/zip/zip.hpp"

// The checksum of an archive's structure: of all bytes that are not entry data, and so not covered
// by a CRC-32. It is stored in the archive comment, which zip readers ignore.
//
// The CRC-32s in the headers are hashed as zeros: they are checked against the entries' bytes, and
// writes to a shared mapping (`r+`) change them. The comment itself is not included.

namespace tenfold::codecs {

inline constexpr std::uint64_t kZipStructureCommentBytes = 29;

/// Returns the archive comment for a checksum: `tenfold_xxh3 <16 hexadecimal digits>`.
std::string zip_structure_comment(std::uint64_t checksum);

/// Returns the XXH3 of the structure, which is read from `input`. The local headers of `directory`
/// must have been read.
std::uint64_t zip_structure_checksum(const ZipInput& input, const ZipDirectory& directory);

/// Returns the correct comment if the archive's comment is one of tenfold and wrong: the comment or
/// the structure is damaged. A comment is one of tenfold if it has the same length as the correct
/// one, and the same first word or digits. Returns nullopt if the comment is correct or not one of
/// tenfold.
std::optional<std::string> corrected_zip_comment(const ZipInput& input,
                                                 const ZipDirectory& directory);

/// Throws Error(corrupt) if corrected_zip_comment() returns a comment. `remedy` ends the message:
/// how to fix the comment if the archive itself is right.
void check_zip_structure(const ZipInput& input, const ZipDirectory& directory,
                         const std::string& remedy);

}  // namespace tenfold::codecs

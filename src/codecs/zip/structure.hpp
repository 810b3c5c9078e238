#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "codecs/zip/zip.hpp"

// The checksum of an archive's structure covers all bytes outside the entries' data, except for the
// archive comment, in which the checksum is stored. Zip readers ignore the comment. CRC-32s cover
// the entries' data.
//
// The CRC-32s in the headers are hashed as zeros, because writes to a shared mapping (`r+`) change
// them. They are checked against the entries' bytes instead.

namespace tenfold::codecs {

inline constexpr std::uint64_t kZipStructureCommentBytes = 29;

/// Returns the archive comment for a checksum: `tenfold_xxh3 <16 hexadecimal digits>`.
std::string zip_structure_comment(std::uint64_t checksum);

/// Returns the XXH3 of the structure, which is read from `input`. The local headers of the entries
/// in `directory` must have been read before.
std::uint64_t zip_structure_checksum(const ZipInput& input, const ZipDirectory& directory);

/// Returns the correct comment if the archive has a wrong one from tenfold, which means that the
/// comment or the structure was damaged or edited. Returns nullopt if the comment is correct or not
/// from tenfold. A comment counts as one from tenfold if it has the length of the correct comment
/// and either starts with the word "tenfold_xxh3" or ends with the correct digits.
std::optional<std::string> corrected_zip_comment(const ZipInput& input,
                                                 const ZipDirectory& directory);

/// Throws Error(corrupt) if corrected_zip_comment() returns a comment. `remedy` ends the message:
/// how to fix the comment if the archive itself is right.
void check_zip_structure(const ZipInput& input, const ZipDirectory& directory,
                         const std::string& remedy);

}  // namespace tenfold::codecs

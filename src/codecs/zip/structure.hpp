#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "codecs/zip/zip.hpp"

// The checksum of an archive's structure: of all bytes that are not entry data, and so not covered
// by a CRC-32. It is stored in the archive comment, which every zip reader skips.
//
// The CRC-32s in the headers are hashed as zeros: they are compared with the data, and writing
// through an archive changes them. The comment itself is not included.

namespace tenfold::codecs {

inline constexpr std::uint64_t kZipStructureCommentBytes = 29;

/// The archive comment that stores a checksum: `tenfold_xxh3 <16 hexadecimal digits>`.
std::string zip_structure_comment(std::uint64_t checksum);

/// XXH3 of the structure. Reads it from `input`; `directory` has the local headers.
std::uint64_t zip_structure_checksum(const ZipInput& input, const ZipDirectory& directory);

/// The comment that the archive should have, if it has a damaged comment of tenfold: one of the
/// same length with our first word, or another word before the right digits. Empty if the comment
/// is right or not ours.
std::optional<std::string> corrected_zip_comment(const ZipInput& input,
                                                 const ZipDirectory& directory);

/// Throws Error(corrupt) if the archive has a tenfold comment with another checksum. `remedy` ends
/// the message: how to fix the comment if the archive itself is right.
void check_zip_structure(const ZipInput& input, const ZipDirectory& directory,
                         const std::string& remedy);

}  // namespace tenfold::codecs

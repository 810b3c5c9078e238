#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "codecs/zip/zip.hpp"

// The checksum of an archive's structure: of all bytes that are no entry's data, which no CRC-32
// covers. It stands in the archive comment, which every zip reader skips.
//
// The CRC-32s in the headers count as zeros: they are compared with the data, and writing through
// an archive changes them. The comment itself does not count.

namespace tenfold::codecs {

inline constexpr std::uint64_t kZipStructureCommentBytes = 29;

/// The archive comment that holds a checksum: `tenfold_xxh3 <16 hexadecimal digits>`.
std::string zip_structure_comment(std::uint64_t checksum);

/// XXH3 of the structure. Reads it from `input`; `directory` has the local headers.
std::uint64_t zip_structure_checksum(const ZipInput& input, const ZipDirectory& directory);

/// The comment that the archive should have. Nothing if it has it, and if its comment is not ours:
/// one of that length that has our first word, or another one before the right digits, is ours and
/// damaged.
std::optional<std::string> corrected_zip_comment(const ZipInput& input,
                                                 const ZipDirectory& directory);

/// Throws Error(corrupt) if the archive has a comment of ours with another checksum. `remedy` ends
/// the message: what to do with an archive that is right.
void check_zip_structure(const ZipInput& input, const ZipDirectory& directory,
                         const std::string& remedy);

}  // namespace tenfold::codecs

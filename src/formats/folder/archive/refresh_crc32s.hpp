#pragma once

#include <cstddef>
#include <span>

#include "formats/folder/archive/archive.hpp"
#include "os/fs/file.hpp"

namespace tenfold::detail::formats::folder {

/// Computes the CRC-32s of the stored entries at the indices `entries`. Writes each one that
/// changed to the local header and then to the central header of the entry. A crash between the two
/// writes leaves different CRC-32s: verify() reports this, and the next refresh of the entry
/// repairs it. Does not read holes of the file. Thread-safe: while the bytes do not change,
/// concurrent calls write the same values. Throws like stored_crc32s().
void refresh_crc32s(os::File& file, const Archive& archive, std::span<const std::size_t> entries,
                    const RefreshOptions& options);

/// Recomputes the checksum of the archive's structure (codecs/zip/structure.hpp), which is stored
/// in the archive's comment, and makes it durable. Does nothing if the comment has no such
/// checksum. The checksum does not include CRC-32s, so writes to tensors do not change it.
void refresh_structure_checksum(os::File& file, const Archive& archive);

/// Disables the lines of all tensors in the entry `%checksums`, if there is one, because the
/// tensors are about to be written through a mapping. The entry keeps its length: a `#` at the
/// start of a line disables it. Throws Error(unsupported) if the entry is deflated, has a data
/// descriptor or is too large.
void drop_leaf_checksums(os::File& file, const Archive& archive);

}  // namespace tenfold::detail::formats::folder

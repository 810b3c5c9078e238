#pragma once

#include <cstddef>
#include <span>

#include "formats/folder/archive/archive.hpp"
#include "os/fs/file.hpp"

namespace tenfold::detail::formats::folder {

/// Computes the CRC-32s of stored entries and writes those that changed into both of their headers:
/// the local one, then the directory's. A kill between the two leaves two CRC-32s, of which verify
/// and the next refresh know. Holes are not read. Thread-safe: two that come at once write the
/// same.
void refresh_crc32s(os::File& file, const Archive& archive, std::span<const std::size_t> entries,
                    const RefreshOptions& options);

/// Computes the checksum in the archive's comment (codecs/zip/structure.hpp) again, if there is
/// one, and waits for the device: the structure is what the owner of the archive wants it to be.
/// CRC-32s are no part of it, so writing through the archive leaves it right.
void refresh_structure_checksum(os::File& file, const Archive& archive);

/// Takes the lines of all tensors out of the entry `%checksums`, if there is one: they are about to
/// be written through. The entry keeps its length; a `#` at the beginning of a line says that the
/// line vouches for nothing.
void drop_leaf_checksums(os::File& file, const Archive& archive);

}  // namespace tenfold::detail::formats::folder

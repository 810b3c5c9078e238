#pragma once

#include <cstddef>
#include <span>

#include "os/file.hpp"

namespace tenfold::memmap_folder {

class Archive;

/// Computes the CRC-32s of stored entries and writes those that changed into both of their headers:
/// the local one, then the directory's. A kill between the two leaves two CRC-32s, of which verify
/// and the next refresh know. With `durable` it waits for the device. Thread-safe: two that come at
/// once write the same.
void refresh_crc32s(os::File& file, const Archive& archive, std::span<const std::size_t> entries,
                    bool durable);

/// Takes the lines of all tensors out of the entry `%checksums`, if there is one: they are about to
/// be written through. The entry keeps its length; a `#` at the beginning of a line says that the
/// line vouches for nothing.
void drop_leaf_checksums(os::File& file, const Archive& archive);

}  // namespace tenfold::memmap_folder

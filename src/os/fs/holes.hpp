#pragma once

#include <cstdint>

#include "os/fs/file.hpp"

namespace tenfold::os {

// Holes are found on ext2 to ext4, XFS, btrfs and tmpfs. On other file systems, files seem to have
// none. `offset_bytes` is within the file.

/// Offset of the first byte at or after `offset_bytes` that is not in a hole, or the end of the
/// file. Bytes written through a mapping count as data.
std::uint64_t next_data(const File& file, std::uint64_t offset_bytes);
/// Offset of the first hole at or after `offset_bytes`, or the end of the file.
std::uint64_t next_hole(const File& file, std::uint64_t offset_bytes);

}  // namespace tenfold::os

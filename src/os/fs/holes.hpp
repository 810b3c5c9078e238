#pragma once

#include <cstdint>

#include "os/fs/file.hpp"

namespace tenfold::os {

/// Offset of the first byte at or after `offset_bytes` that is not in a hole, or the end of the
/// file. Bytes written through a mapping count as data. A file system without SEEK_DATA reports no
/// holes.
std::uint64_t next_data(const File& file, std::uint64_t offset_bytes);
/// Offset of the next hole, at most the end of the file.
std::uint64_t next_hole(const File& file, std::uint64_t offset_bytes);

}  // namespace tenfold::os

#pragma once

#include <cstdint>

#include "os/fs/file.hpp"

namespace tenfold::os {

/// Where the next byte is that lies in no hole of the file: `offset_bytes` itself, a later one, or
/// the end of the file. What was written through a mapping is no hole. File systems that do not
/// tell that have none.
std::uint64_t next_data(const File& file, std::uint64_t offset_bytes);
/// Where the next hole begins: the end of the file at the latest.
std::uint64_t next_hole(const File& file, std::uint64_t offset_bytes);

}  // namespace tenfold::os

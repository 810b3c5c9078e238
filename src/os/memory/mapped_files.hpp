#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "os/fs/file.hpp"

namespace tenfold::os {

/// The file that a range of memory is mapped from.
struct MappedFile {
  std::shared_ptr<const File> file;  ///< opened again; null if the range is not mapped from a file,
                                     ///< or the file was removed
  std::uint64_t offset_bytes = 0;    ///< offset of the range in the file
};

/// The mapped file of each of `ranges`, none of which is empty. Reads /proc/self/maps, which takes
/// time proportional to the number of maps.
std::vector<MappedFile> files_of_mappings(std::span<const std::span<const std::byte>> ranges);

/// True if the file is on a network or FUSE file system. There, madvise-style hints may be served
/// late, or one request at a time.
bool is_remote(const File& file) noexcept;

/// True on file systems where two hosts that write to one page can lose each other's bytes: NFS,
/// 9p, SMB, FUSE.
bool loses_shared_pages(const File& file) noexcept;

}  // namespace tenfold::os

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "os/fs/file.hpp"

namespace tenfold::os {

/// The file that bytes in memory are a map of.
struct MappedFile {
  std::shared_ptr<const File> file;  ///< opened again; null if they are of no file, or it is gone
  std::uint64_t offset_bytes = 0;    ///< where the first of the bytes lies in it
};

/// One for each of `ranges`, none of which is empty; asks the system, which takes the longer the
/// more maps there are.
std::vector<MappedFile> files_of_mappings(std::span<const std::span<const std::byte>> ranges);

/// True if the file is on another machine, or served by a program: what the kernel is only advised
/// to read may come late there, or one piece after the other.
bool is_remote(const File& file) noexcept;

/// True for a file on a file system where two hosts that write into one page can lose each other's
/// bytes: NFS, 9p, SMB, FUSE.
bool loses_shared_pages(const File& file) noexcept;

}  // namespace tenfold::os

#pragma once

#include <cstdint>
#include <optional>

#include "os/fs/file.hpp"

namespace tenfold::os {

/// True if the file is on FUSE or on a known network file system: NFS, 9p, SMB, Ceph, Lustre, GPFS,
/// AFS. There, madvise-style hints may be served late, or one request at a time.
bool is_remote(const File& file) noexcept;

/// True on file systems where two hosts that write to one page can lose each other's bytes: NFS,
/// 9p, SMB, FUSE.
bool loses_shared_pages(const File& file) noexcept;

/// Makes the functions above treat every file as if it were on the file system `magic` (`f_type` of
/// statfs(2)); an empty `magic` restores the real file system. For tests; returns the previous
/// setting.
std::optional<std::uint32_t> set_file_system(std::optional<std::uint32_t> magic) noexcept;

}  // namespace tenfold::os

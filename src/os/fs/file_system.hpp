#pragma once

#include "os/fs/file.hpp"

namespace tenfold::os {

/// True if the file is on a network or FUSE file system. There, madvise-style hints may be served
/// late, or one request at a time.
bool is_remote(const File& file) noexcept;

/// True on file systems where two hosts that write to one page can lose each other's bytes: NFS,
/// 9p, SMB, FUSE.
bool loses_shared_pages(const File& file) noexcept;

}  // namespace tenfold::os

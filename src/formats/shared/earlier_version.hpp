#pragma once

#include <cstdint>
#include <string>

#include "os/fs/directory.hpp"
#include "os/fs/file.hpp"

namespace tenfold::detail::formats {

/// A saved version of the data that is about to be written. If a file of it is equal, by the
/// checksums that were saved with it, it gets a second name (a hard link) instead of being written.
struct EarlierVersion {
  os::Directory folder;       ///< the folder that contains it
  std::string name;           ///< name of its file or folder in `folder`
  std::int64_t saved_ns = 0;  ///< files with a later modification time are not used
  bool is_synced = false;     ///< its files are durable (fsynced)
};

/// Links the file `old_name` of `old_folder`, a part of `earlier`, as `name` in `folder`, and
/// removes its write permission, because a write would change both versions. Returns the file.
/// Returns an invalid File, and leaves `folder` as it was, if the old file is not a regular file of
/// that size, was modified after it was saved, is gone, cannot be linked, or if this user may not
/// read it or change its permissions. Reads no bytes.
os::File link_unchanged(os::Directory& folder, const std::string& name,
                        const EarlierVersion& earlier, const os::Directory& old_folder,
                        const std::string& old_name, std::uint64_t size_bytes);

}  // namespace tenfold::detail::formats

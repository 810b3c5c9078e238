#pragma once

#include <cstdint>
#include <string>

#include "os/fs/directory.hpp"
#include "os/fs/file.hpp"

namespace tenfold::detail::formats {

/// An earlier saved version of the data that a save writes. If the saved checksums of a file equal
/// those of the new data, the new version gets a hard link to that file instead of a new file.
struct EarlierVersion {
  os::Directory folder;       ///< the folder that contains this version
  std::string name;           ///< name of the version's file or folder in `folder`
  std::int64_t saved_ns = 0;  ///< files with a later modification time are not used
  bool is_synced = false;     ///< its files are durable (fsynced)
};

/// Creates the hard link `name` in `folder` to the file `old_name` of `old_folder`, a folder of
/// `earlier`. Removes the write permission of the file for all users, because a write would change
/// both versions. Returns the file, open for reading. Reads no file content. Returns an invalid
/// File, and leaves no link, if the old file no longer exists, is not a regular file of
/// `size_bytes` bytes, was modified after EarlierVersion::saved_ns, or cannot be linked (for
/// example to another file system), or if this user may not read it or change its permissions.
os::File link_unchanged(os::Directory& folder, const std::string& name,
                        const EarlierVersion& earlier, const os::Directory& old_folder,
                        const std::string& old_name, std::uint64_t size_bytes);

}  // namespace tenfold::detail::formats

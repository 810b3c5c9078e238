#pragma once

#include <cstdint>
#include <string>

#include "os/fs/directory.hpp"
#include "os/fs/file.hpp"

namespace tenfold::detail::formats {

/// A saved version of what is about to be written. Its files that are equal, by the checksums that
/// they were saved with, get a second name (a hard link) instead of being written again.
struct EarlierVersion {
  os::Directory folder;       ///< that contains it
  std::string name;           ///< of its file or folder there
  std::int64_t saved_ns = 0;  ///< files with a later modification time are not used
  bool is_synced = false;     ///< its files are on the device
};

/// Links the file `old_name` of `old_folder`, a part of `earlier`, as `name` in `folder`, and
/// takes write permission from it, as writing would change both versions. Returns the file. Invalid
/// if it is not a regular file of that size, was modified after it was saved, is gone, or cannot be
/// linked: `folder` is then as it was. Its bytes are not read.
os::File link_unchanged(os::Directory& folder, const std::string& name,
                        const EarlierVersion& earlier, const os::Directory& old_folder,
                        const std::string& old_name, std::uint64_t size_bytes);

}  // namespace tenfold::detail::formats

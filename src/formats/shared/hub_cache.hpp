#pragma once

#include <string>
#include <string_view>

#include "os/fs/directory.hpp"

namespace tenfold::detail::formats {

/// Opens the file `name` in `folder`. Returns an invalid File if there is no such entry.
///
/// A link is only followed in one case, the Hugging Face hub's cache, where the files of
/// `snapshots/<commit>/` are links to `../../blobs/<hash>`. The target must be 2 to 16 times `../`,
/// then `blobs/` and a name of 40 or 64 lower-case hexadecimal digits: a regular file in a real
/// folder. So a folder from an untrusted source can only reach files named by a hash. Throws
/// Error(corrupt) for every other link, naming its target; `index_display` is the path in the
/// message. Throws Error(file_not_found) if the target does not exist.
os::File open_shard(const os::Directory& folder, const std::string& name,
                    const std::string& index_display);

/// True if the entry is such a link of the cache, and its target can be opened.
bool is_cache_link(const os::Directory& folder, const std::string& name);

}  // namespace tenfold::detail::formats

#pragma once

#include <string>
#include <string_view>

#include "os/fs/directory.hpp"

namespace tenfold::detail::formats {

/// Opens the file `name` next to an index in `folder`; returns an invalid File if there is none.
///
/// A link is only followed in one case, the Hugging Face hub's cache, where the files of
/// `snapshots/<commit>/` are links to `../../blobs/<hash>`. The target must be `../` at least
/// twice, then `blobs/` and a name of 40 or 64 hexadecimal digits, which is a regular file in a
/// real folder. So a folder from an untrusted source can only reach files named by a hash. Throws
/// Error(corrupt) for every other link, naming its target.
os::File open_shard(const os::Directory& folder, const std::string& name,
                    const std::string& index_display);

/// True if the entry is such a link of the cache, and its target exists.
bool is_cache_link(const os::Directory& folder, const std::string& name);

}  // namespace tenfold::detail::formats

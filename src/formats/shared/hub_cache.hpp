#pragma once

#include <string>
#include <string_view>

#include "os/fs/directory.hpp"

namespace tenfold::detail::formats {

/// Opens the file `name` beside an index, `folder` being where the index lies; an invalid File if
/// there is none.
///
/// A link is followed in one case, that of the Hugging Face hub's cache, where the files of
/// `snapshots/<commit>/` are links to `../../blobs/<hash>`: its text is `../` at least twice, then
/// `blobs/` and a name of 40 or 64 hexadecimal digits, which must be a regular file in a real
/// folder. So a folder from elsewhere reaches no file but those that a hash names.
/// Throws Error(corrupt) for every other link, naming where it leads.
os::File open_shard(const os::Directory& folder, const std::string& name,
                    const std::string& index_display);

/// True if the entry is such a link of the cache, and its file is there.
bool is_cache_link(const os::Directory& folder, const std::string& name);

}  // namespace tenfold::detail::formats

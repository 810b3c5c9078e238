#pragma once

#include <string>
#include <string_view>

#include "os/fs/directory.hpp"

namespace tenfold::detail::formats {

/// Opens the file `name` in `folder`. Returns an invalid File if there is no such entry.
///
/// Follows only symbolic links as in the cache of the Hugging Face hub, where the files in
/// `snapshots/<commit>/` are links to `../../blobs/<hash>`. The text of the link must be 2 to 16
/// times `../`, then `blobs/`, then 40 or 64 lower-case hexadecimal digits. Its target must be a
/// regular file, and neither the target nor `blobs` may be a link. So a folder from an untrusted
/// source can only reach files that are named by a hash. Throws Error(corrupt) for every other
/// link, with the path `index_display` and the text of the link in the message. Throws
/// Error(file_not_found) if the target does not exist.
os::File open_shard(const os::Directory& folder, const std::string& name,
                    const std::string& index_display);

/// True if `name` is a link that open_shard() follows, and its target can be opened.
bool is_cache_link(const os::Directory& folder, const std::string& name);

}  // namespace tenfold::detail::formats

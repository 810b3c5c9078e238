#pragma once

#include <vector>

#include "formats/shared/zip_archive.hpp"

namespace tenfold::detail::formats {

/// What write_zip_archive() does where entries are to be deflated. An entry is deflated whole, by
/// one thread: the memory for it is its size, and what comes of it; several are deflated at once as
/// long as they are 64 MiB together. What would not become smaller is stored.
void write_deflated_archive(os::File& file, const std::vector<ZipArchiveEntry>& entries,
                            const WriteRequest& request, Progress& progress);

}  // namespace tenfold::detail::formats

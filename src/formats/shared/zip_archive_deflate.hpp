#pragma once

#include <vector>

#include "formats/shared/zip_archive.hpp"

namespace tenfold::detail::formats {

/// Implements write_zip_archive() if entries are to be deflated. One thread deflates a whole entry,
/// which needs memory for the entry and the result. Entries of up to 64 MiB together are deflated
/// concurrently, a larger one by itself. Entries that would not become smaller are stored.
void write_deflated_archive(os::File& file, const std::vector<ZipArchiveEntry>& entries,
                            const WriteRequest& request, Progress& progress);

}  // namespace tenfold::detail::formats

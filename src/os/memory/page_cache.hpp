#pragma once

#include "os/fs/file.hpp"

namespace tenfold::os {

/// Drops the file from the page cache, so that the next reader has to wait for the device. False if
/// some pages stay: they are mapped, dirty, or the file system is in memory.
bool drop_from_page_cache(const File& file);

}  // namespace tenfold::os

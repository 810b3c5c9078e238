#pragma once

#include "os/fs/file.hpp"

namespace tenfold::os {

/// Asks the system to forget the file's pages, so that the next reader waits for the device. False
/// if some stay: they are mapped or not yet written, or the file system is in memory.
bool drop_from_page_cache(const File& file);

}  // namespace tenfold::os

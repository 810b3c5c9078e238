#pragma once

#include <tenfold/memmap.hpp>

namespace tenfold::memmap_folder {

/// append_memmap() of memmap.hpp.
void append_rows(const Path& path, const TensorDict& rows);

}  // namespace tenfold::memmap_folder

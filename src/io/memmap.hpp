#pragma once

#include <tenfold/memmap.hpp>

namespace tenfold {

/// memmap() without opening what was written.
void write_memmap(const TensorDict& tree, const Path& path, const MemmapOptions& options = {});

}  // namespace tenfold

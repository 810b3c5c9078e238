#pragma once

#include <tenfold/memmap.hpp>

namespace tenfold {

/// memmap() without opening the result.
void write_memmap(const TensorDict& tree, const Path& path, const MemmapOptions& options = {});

}  // namespace tenfold

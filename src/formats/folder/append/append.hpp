#pragma once

#include <tenfold/memmap.hpp>

namespace tenfold::detail::formats::folder {

/// Implements append_memmap() of tenfold/memmap.hpp.
void append_rows(const Path& path, const TensorDict& rows);

}  // namespace tenfold::detail::formats::folder

#pragma once

#include "formats/format.hpp"

namespace tenfold::detail::formats::consolidated {

/// Like kFormat.write_tree, but also stores whether the tree is locked.
void write_tree(const TensorDict& tree, const Path& path, const WriteRequest& request, bool locked);

}  // namespace tenfold::detail::formats::consolidated

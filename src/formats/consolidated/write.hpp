#pragma once

#include "formats/format.hpp"

namespace tenfold::detail::formats::consolidated {

/// Like kFormat.write_tree, but stores `locked` as `is_locked` of every node. kFormat.write_tree
/// stores false.
void write_tree(const TensorDict& tree, const Path& path, const WriteRequest& request, bool locked);

}  // namespace tenfold::detail::formats::consolidated

#pragma once

#include "formats/format.hpp"

namespace tenfold {

/// kConsolidated.write, but that the file says whether the tree is locked.
void write_consolidated(const TensorDict& tree, const Path& path, const WriteRequest& request,
                        bool locked);

}  // namespace tenfold

#include <tenfold/consolidated.hpp>

#include "formats/consolidated/write.hpp"
#include "io/holdable.hpp"

namespace tenfold {

void consolidate(const TensorDict& tree, const Path& path, const ConsolidateOptions& options) {
  refuse_opaque(tree, path.string(), "");
  WriteRequest request;
  request.durable = options.durable;
  request.checksums = false;
  request.notes = false;
  request.num_threads = options.num_threads;
  request.monitor = options.monitor;
  named_by_path(kConsolidated, path,
                [&] { write_consolidated(tree, path, request, options.locked); });
}

}  // namespace tenfold

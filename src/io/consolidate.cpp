#include <tenfold/consolidated.hpp>

#include "formats/consolidated_write.hpp"

namespace tenfold {

void consolidate(const TensorDict& tree, const Path& path, const ConsolidateOptions& options) {
  WriteRequest request;
  request.durable = options.durable;
  request.checksums = false;
  request.notes = false;
  request.num_threads = options.num_threads;
  request.monitor = options.monitor;
  write_consolidated(tree, path, request, options.locked);
}

}  // namespace tenfold

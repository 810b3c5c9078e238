#include <tenfold/consolidated.hpp>

#include "formats/consolidated/write.hpp"
#include "io/check_supported.hpp"

namespace tenfold {

using namespace detail;

void consolidate(const TensorDict& tree, const Path& path, const ConsolidateOptions& options) {
  refuse_opaque(tree, path.string(), "");
  formats::WriteRequest request;
  request.durable = options.durable;
  request.checksums = false;
  request.notes = false;
  request.num_threads = options.num_threads;
  request.monitor = options.monitor;
  with_path(path, [&] { formats::consolidated::write_tree(tree, path, request, options.locked); });
}

}  // namespace tenfold

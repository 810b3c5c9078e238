#include <tenfold/io.hpp>

#include "io/registry.hpp"

namespace tenfold {

VerifyReport verify(const Path& path, const VerifyOptions& options) {
  const Format& format = format_of_content(path, options.format);
  return format.verify(path, {.num_threads = options.num_threads, .monitor = options.monitor});
}

}  // namespace tenfold

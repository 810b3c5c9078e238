#include <tenfold/error.hpp>
#include <tenfold/io.hpp>

#include <string>

#include "core/tree/bare.hpp"
#include "formats/shared/commit.hpp"
#include "io/check_supported.hpp"
#include "io/registry.hpp"
#include "os/fs/file.hpp"
#include "os/fs/unreplaced.hpp"
#include "os/memory/allocation.hpp"

namespace tenfold {

using namespace detail;

std::string probe(const Path& path) {
  return os::read_unreplaced(path,
                             [&] { return std::string(format_of_content(path, {}).format->name); });
}

TensorDict open(const Path& path, const OpenOptions& options) {
  os::keep_freed_memory();
  return os::read_unreplaced(
      path, [&] { return format_of_content(path, options.format).open(options.mode); });
}

Path save(const TensorDict& saved, const Path& path, const SaveOptions& options) {
  os::keep_freed_memory();
  const TensorDict tree = with_bare_key(saved);
  const formats::Format& format = format_for_saving(path, options.format);
  formats::refuse_existing(path, options.overwrite);
  check_supported(tree, format, path.string());
  with_path(path, [&] {
    format.write(tree, path,
                 {.durable = options.durable,
                  .checksums = options.checksums,
                  .num_threads = options.num_threads,
                  .monitor = options.monitor});
  });
  return path;
}

Path save_value(const TensorDict::Item& value, const Path& path, const SaveOptions& options) {
  return save(bare_tree(value), path, options);
}

}  // namespace tenfold

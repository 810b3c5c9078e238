#include <tenfold/error.hpp>
#include <tenfold/inspect.hpp>
#include <tenfold/io.hpp>

#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "base/text.hpp"
#include "io/cast_source.hpp"
#include "io/convert.hpp"
#include "io/holdable.hpp"
#include "io/registry.hpp"
#include "io/rename.hpp"
#include "io/selector.hpp"
#include "io/sparse_check.hpp"
#include "io/tree.hpp"

namespace tenfold {

using namespace detail;
namespace {

TensorDict with_dtype(const TensorDict& tree, DType dtype) {
  if (!is_floating_point(dtype)) {
    throw Error(ErrorCode::invalid_argument,
                "dtype: only floating-point tensors are cast, to another floating-point dtype: "
                "expected one such as float16, bfloat16 or float32, found " +
                    std::string(name(dtype)));
  }
  return map_leaves(tree, [dtype](const Leaf& leaf) {
    if (!is_floating_point(leaf.dtype()) || leaf.dtype() == dtype) return leaf;
    return cast_lazily(leaf, dtype);
  });
}

void refuse_shard_size(const formats::Format& format, const Path& target,
                       std::uint64_t shard_size_bytes) {
  if (shard_size_bytes == 0 || &format == &formats::safetensors::kShardedFormat) return;
  throw Error(ErrorCode::invalid_argument,
              target.string() +
                  ": a shard size is for an index of shards: expected a name that "
                  "ends in \".safetensors.index.json\", found " +
                  base::quote(target.filename().string()));
}

}  // namespace

void refuse_inside(const Path& source, const Path& target) {
  // Another tree in there would belong to neither.
  std::error_code ignored;
  if (!std::filesystem::is_directory(source, ignored)) return;
  const Path outer = std::filesystem::weakly_canonical(source, ignored);
  if (ignored) return;
  const Path inner = std::filesystem::weakly_canonical(target, ignored).lexically_relative(outer);
  if (ignored || inner.empty() || inner == "." || *inner.begin() == "..") return;
  throw Error(ErrorCode::invalid_argument,
              target.string() + ": it lies inside the source: expected a path outside " +
                  base::quote(source.string()) + ", found " + base::quote(inner.string()) +
                  " in it");
}

ConvertReport convert(const Path& source, const Path& target, const ConvertOptions& options) {
  refuse_inside(source, target);
  // Before the source is opened: a wrong target costs nothing.
  refuse_shard_size(format_for_saving(target, options.format), target, options.shard_size_bytes);
  TensorDict tree = open(source, {.format = options.from});
  require_renamed(tree, options.renamed);
  tree = select_only(tree, options.keys, options.only_keys, options.exclude);
  return convert_tree(std::move(tree), source.string(), target, options);
}

ConvertReport convert_tree(TensorDict tree, const std::string& source, const Path& target,
                           const ConvertOptions& options) {
  const formats::Format& format = format_for_saving(target, options.format);
  refuse_shard_size(format, target, options.shard_size_bytes);
  // What torch.load would trust: indices beyond the shape read beyond its memory.
  require_sound_sparse_nodes(tree, source);
  tree = rename_leaves(tree, options.rename);
  if (options.dtype) tree = with_dtype(tree, *options.dtype);
  refuse_opaque(tree, source, "; exclude= leaves it out");
  require_holdable(tree, format, target.string());
  named_by_path(format, target, [&] { format.check(tree); });
  // Counted first: `target` may be the source, whose leaves cannot be asked once it is replaced.
  ConvertReport report;
  for (const NamedLeaf& named : tensors_of(tree)) {
    ++report.num_leaves;
    report.num_bytes += named.leaf.nbytes();
  }
  format.write(tree, target,
               {.durable = options.durable,
                .checksums = options.checksums,
                .num_threads = options.num_threads,
                .shard_size_bytes = options.shard_size_bytes,
                .monitor = options.monitor});
  return report;
}

}  // namespace tenfold

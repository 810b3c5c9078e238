#include <tenfold/error.hpp>
#include <tenfold/inspect.hpp>
#include <tenfold/io.hpp>

#include <string>

#include "base/text.hpp"
#include "io/cast_source.hpp"
#include "io/holdable.hpp"
#include "io/registry.hpp"
#include "io/rename.hpp"
#include "io/tree.hpp"

namespace tenfold {
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

}  // namespace

ConvertReport convert(const Path& source, const Path& target, const ConvertOptions& options) {
  TensorDict tree = open(source, {.format = options.from});
  tree = select(tree, options.keys, options.exclude);
  tree = rename_leaves(tree, options.rename);
  if (options.dtype) tree = with_dtype(tree, *options.dtype);
  const Format& format = format_for_saving(target, options.format);
  refuse_opaque(tree, source.string(), "; exclude= leaves it out");
  require_holdable(tree, format, target.string());
  format.check(tree);
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

#include "io/convert.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>
#include <tenfold/inspect.hpp>
#include <tenfold/io.hpp>
#include <tenfold/leaf.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/tensor/cast.hpp"
#include "core/tensor/leaf_bytes.hpp"
#include "core/tree/bare.hpp"
#include "core/tree/leaf_source.hpp"
#include "core/tree/node.hpp"
#include "io/check_supported.hpp"
#include "io/registry.hpp"
#include "io/rename.hpp"
#include "io/require_intact.hpp"
#include "io/sparse_check.hpp"
#include "io/tree.hpp"
#include "os/fs/file.hpp"

namespace tenfold {
namespace {

constexpr std::uint64_t kElementsPerCast = std::uint64_t{1} << 16;

/// The values of one leaf in another dtype.
class CastSource : public LeafSource {
 public:
  CastSource(Leaf inner, DType dtype) : inner_(std::move(inner)), dtype_(dtype) {}

  Buffer map(const Leaf& leaf) override {
    Buffer buffer = Buffer::allocate(static_cast<std::size_t>(num_elements() * itemsize(dtype_)));
    read(leaf, 0, buffer.mutable_bytes());
    return buffer;
  }

  void read(const Leaf&, std::uint64_t offset_bytes, std::span<std::byte> into) override {
    const std::uint64_t item = itemsize(dtype_);
    const std::uint64_t inner_item = itemsize(inner_.dtype());
    const std::uint64_t end_bytes = offset_bytes + into.size();
    const std::uint64_t end = (end_bytes + item - 1) / item;
    std::vector<std::byte> source;
    std::vector<std::byte> cast;
    for (std::uint64_t at = offset_bytes / item; at < end; at += kElementsPerCast) {
      const std::uint64_t count = std::min(kElementsPerCast, end - at);
      source.resize(count * inner_item);
      cast.resize(count * item);
      inner_.read(at * inner_item, source);
      cast_elements(inner_.dtype(), source.data(), dtype_, cast.data(), count);
      // The requested range may start or end within an element.
      const std::uint64_t from = std::max(offset_bytes, at * item);
      const std::uint64_t to = std::min(end_bytes, (at + count) * item);
      std::memcpy(into.data() + (from - offset_bytes), cast.data() + (from - at * item), to - from);
    }
  }

  Tensor nested_sizes(const Leaf&) override { return inner_.sizes(); }

  StoredRange identity(const Leaf&) override {
    StoredRange inner = stored_range(inner_);
    if (inner == StoredRange{}) return {};
    // Two casts are aliases only if they cast the same bytes between the same two dtypes.
    const std::uint64_t dtypes =
        static_cast<std::uint64_t>(inner_.dtype()) << 32 | static_cast<std::uint64_t>(dtype_);
    return {.part = dtypes, .pieces = {std::move(inner)}};
  }

  base::Where where(const Leaf&) const override {
    return source_of(inner_) == nullptr ? base::Where("", "tensor in memory")
                                        : source_of(inner_)->where(inner_);
  }

  std::vector<Leaf> parts(const Leaf&) const override { return {inner_}; }

 private:
  std::uint64_t num_elements() const { return inner_.nbytes() / itemsize(inner_.dtype()); }

  Leaf inner_;
  DType dtype_;
};

/// A leaf with the values of `leaf` in another dtype. Nothing is read until the values are used:
/// read() casts with bounded memory, map() casts all of them into memory. Aliases remain aliases.
Leaf cast_lazily(const Leaf& leaf, DType dtype) {
  Leaf cast = stored_leaf(dtype, leaf.shape(), std::make_shared<CastSource>(leaf, dtype), 0);
  if (leaf.is_nested()) cast.mark_nested();
  cast.mark_unbatched(leaf.is_unbatched());
  if (is_floating_point(dtype) || is_complex(dtype)) cast.mark_grad(leaf.grad());
  return cast;
}

}  // namespace

using namespace detail;
namespace {

TensorDict with_dtype(const TensorDict& tree, DType dtype) {
  if (!is_floating_point(dtype)) {
    throw base::invalid_argument()
        .part("dtype")
        .problem("only floating-point tensors are cast, to another floating-point dtype")
        .expected("one such as float16, bfloat16 or float32")
        .found(to_string(dtype));
  }
  return map_leaves(tree, [dtype](const Leaf& leaf) {
    if (!is_floating_point(leaf.dtype()) || leaf.dtype() == dtype) return leaf;
    return cast_lazily(leaf, dtype);
  });
}

}  // namespace

void refuse_inside(const Path& source, const Path& target) {
  // The target would be a separate tree inside the source's folder.
  if (!os::exists(source) || !os::file_info(source).is_directory) return;
  const Path inner = os::path_within(source, target);
  if (inner.empty() || inner == ".") return;
  throw base::invalid_argument(target.string())
      .problem("it is inside the source")
      .expected("a path outside ", base::quote(source.string()))
      .found(base::quote(inner.string()), " in it");
}

ConvertReport convert(const Path& source, const Path& target, const ConvertOptions& options) {
  refuse_inside(source, target);
  // Check the target before opening the source, so that a wrong target fails at once.
  const formats::Format& format = format_for_converting(target, options);
  if (options.verify) {
    require_intact(*format_of_content(source, options.from).format, source, options.keys,
                   options.exclude,
                   {.num_threads = options.num_threads, .monitor = options.monitor});
  }
  TensorDict tree = with_bare_key(open(source, {.format = options.from}));
  require_renamed(tree, options.renamed);
  tree = select(tree, options.keys, options.exclude);
  return convert_tree(std::move(tree), source.string(), format, target, options);
}

const formats::Format& format_for_converting(const Path& target, const ConvertOptions& options) {
  const formats::Format& format = format_for_saving(target, options.format);
  refuse_shard_size(format, target, options.shard_size_bytes);
  return format;
}

namespace {

/// If a tree has one tensor and no other entry on any level, returns that tensor as a bare root,
/// for a format that can only store a single tensor. Other trees are returned unchanged: the
/// format, or refuse_opaque(), refuses them.
TensorDict only_tensor(const TensorDict& tree) {
  TensorDict node = tree;
  for (std::size_t depth = 0; depth <= kMaxDepth && node.size() == 1; ++depth) {
    std::optional<TensorDict::Item> only;
    node.for_each([&](const std::string&, const TensorDict::Item& item) { only = item; });
    if (std::holds_alternative<Leaf>(*only)) {
      TensorDict made = bare_tree(*std::move(only));
      made.info().schema = tree.info().schema;
      made.info().metadata = tree.info().metadata;
      return made;
    }
    const auto* child = std::get_if<TensorDict>(&*only);
    if (child == nullptr || child->kind() == NodeKind::opaque || child->info().is_refused()) break;
    node = *child;
  }
  return tree;
}

}  // namespace

ConvertReport convert_tree(TensorDict tree, const std::string& source,
                           const formats::Format& format, const Path& target,
                           const ConvertOptions& options) {
  // torch.load does not check the indices of sparse tensors by default. An index beyond the shape
  // would make later operations access memory out of bounds.
  check_all_sparse_indices(tree, source);
  tree = rename_leaves(with_bare_key(tree), options.rename);
  if (format.bare_roots == formats::BareRoots::all) tree = only_tensor(tree);
  if (options.dtype) tree = with_dtype(tree, *options.dtype);
  if (options.rename || options.dtype) fit_schema(tree);
  refuse_opaque(tree, source, "; to omit it, use the option exclude");
  check_supported(tree, format, target.string());
  with_path(target, [&] { format.check(tree); });
  // Count before writing: `target` may be the source, whose leaves cannot be read once it is
  // replaced.
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

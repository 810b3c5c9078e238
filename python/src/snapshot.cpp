#include <tenfold/snapshot.hpp>

#include <nanobind/stl/string.h>

#include <utility>

#include "arguments.hpp"
#include "call.hpp"
#include "tree_in.hpp"

namespace tenfold::python {

using namespace nb::literals;

namespace {

void save_tree(const NodeHandle& tree, PathArgument path, bool durable, NamesArgument replicated,
               ProgressArgument progress, std::uint64_t slab_bytes, std::uint64_t chunk_bytes) {
  const Path where = path_from(path);
  SnapshotOptions options;
  options.slab_bytes = slab_bytes;
  options.chunk_bytes = chunk_bytes;
  options.durable = durable;
  for (const nb::handle glob : replicated) options.replicated.push_back(utf8(glob));
  monitored(std::move(progress), [&](Monitor* monitor) {
    options.monitor = monitor;
    save_snapshot(tree.node, where, options);
  });
}

nb::str metadata_of(PathArgument path) {
  const Path where = path_from(path);
  return text(without_gil([&] { return snapshot_metadata(where); }));
}

const Leaf& leaf_of(const ItemHandle& item) {
  const auto* leaf = std::get_if<Leaf>(&item.item);
  if (leaf == nullptr) {
    throw Error(ErrorCode::invalid_argument, "entry: expected a tensor, found another");
  }
  return *leaf;
}

/// Fills the tensors "0", "1", ... of `target` from `items`, in order.
void fill_tensors(AnyObject items, const NodeHandle& target, bool cast, ProgressArgument progress) {
  TensorDict source;
  std::size_t position = 0;
  for (const nb::handle item : items) {
    source.set(std::to_string(position++), leaf_of(nb::cast<const ItemHandle&>(item)));
  }
  LoadIntoOptions options;
  options.cast = cast;
  monitored(std::move(progress), [&](Monitor* monitor) {
    options.monitor = monitor;
    load_into(target.node, source, options);
  });
}

/// Fills the contiguous tensor "0" of `target` with the bytes of the item from `offset_bytes`.
void read_bytes(const ItemHandle& item, std::uint64_t offset_bytes, const NodeHandle& target) {
  const Leaf& leaf = leaf_of(item);
  const Tensor into = target.node.tensor({"0"});
  if (!into.is_contiguous()) {
    throw Error(ErrorCode::invalid_argument, "target: expected a contiguous tensor");
  }
  without_gil(
      [&] { leaf.read(offset_bytes, {into.raw_data(), static_cast<std::size_t>(into.nbytes())}); });
}

}  // namespace

void bind_snapshot(nb::module_& module) {
  module.def("save_snapshot", &save_tree, "tree"_a, "path"_a, "durable"_a, "replicated"_a,
             "progress"_a.none(), "slab_bytes"_a = SnapshotOptions().slab_bytes,
             "chunk_bytes"_a = SnapshotOptions().chunk_bytes);
  module.def("snapshot_metadata", &metadata_of, "path"_a);
  module.def("fill_tensors", &fill_tensors, "items"_a, "target"_a, "cast"_a, "progress"_a.none());
  module.def("read_bytes", &read_bytes, "item"_a, "offset_bytes"_a, "target"_a);
}

}  // namespace tenfold::python

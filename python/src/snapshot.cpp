#include <tenfold/snapshot.hpp>

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tenfold/read_boxes.hpp>

#include "arguments.hpp"
#include "base/fail.hpp"
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
    throw base::invalid_argument()
        .part("entry")
        .expected("a tensor")
        .found("an entry of another kind");
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

/// Reads a box of each tensor in `items` into the tensors "0", "1", ... of `target`. The box starts
/// at the corresponding item of `offsets` and has the shape of the tensor in `target`.
void read_boxes_into(nb::object items, nb::object offsets, const NodeHandle& target) {
  std::vector<BoxRead> reads;
  for (const nb::handle item : items) {
    reads.push_back({leaf_of(nb::cast<const ItemHandle&>(item)), {}, {}});
  }
  std::size_t position = 0;
  for (const nb::handle of_item : offsets) {
    reads.at(position).offsets = shape_from(of_item);
    reads.at(position).destination = target.node.tensor({std::to_string(position)});
    ++position;
  }
  monitored(nb::none(), [&](Monitor* monitor) { read_boxes(reads, 0, monitor); });
}

/// Parses (key, dtype, shape, offsets of the parts, mesh). The mesh is (shape, ranks, dim_map) or
/// None.
SnapshotShards snapshot_shards_from(nb::handle description) {
  const auto fields = nb::cast<nb::tuple>(description);
  SnapshotShards shards;
  for (const nb::handle piece : fields[0]) shards.key.push_back(utf8(piece));
  const std::string dtype = utf8(fields[1]);
  const auto known = dtype_from_name(dtype);
  if (!known) {
    throw base::unsupported().part("dtype").expected("one that tenfold supports").found(dtype);
  }
  shards.dtype = *known;
  shards.shape = shape_from(fields[2]);
  for (const nb::handle offsets : fields[3]) shards.offsets.push_back(shape_from(offsets));
  if (!fields[4].is_none()) {
    const auto mesh = nb::cast<nb::tuple>(fields[4]);
    shards.is_dtensor = true;
    shards.mesh_shape = shape_from(mesh[0]);
    shards.mesh = shape_from(mesh[1]);
    for (const nb::handle dims : mesh[2]) shards.dim_map.push_back(shape_from(dims));
  }
  return shards;
}

void make_snapshot_part(SnapshotPart* self, const NodeHandle& tree, std::int64_t rank,
                        std::int64_t world_size, nb::object shards, nb::object replicated,
                        std::uint64_t slab_bytes, std::uint64_t chunk_bytes) {
  SnapshotOptions options;
  options.slab_bytes = slab_bytes;
  options.chunk_bytes = chunk_bytes;
  for (const nb::handle glob : replicated) options.replicated.push_back(utf8(glob));
  std::vector<SnapshotShards> all;
  for (const nb::handle description : shards) all.push_back(snapshot_shards_from(description));
  construct_without_gil(
      self, [&] { new (self) SnapshotPart(tree.node, rank, world_size, std::move(all), options); });
}

std::string write_snapshot_part(SnapshotPart& self, const std::string& ticket,
                                ProgressArgument progress) {
  std::string receipt;
  monitored(std::move(progress), [&](Monitor* monitor) { receipt = self.write(ticket, monitor); });
  return receipt;
}

void make_snapshot_writer(SnapshotWriter* self, PathArgument path,
                          const std::vector<std::string>& outlines, bool durable) {
  const Path where = path_from(path);
  SnapshotOptions options;
  options.durable = durable;
  construct_without_gil(self, [&] { new (self) SnapshotWriter(where, outlines, options); });
}

NodeHandle open_rank(PathArgument path, std::int64_t rank) {
  const Path where = path_from(path);
  return {without_gil([&] { return open_snapshot(where, rank); })};
}

}  // namespace

void bind_snapshot(nb::module_& module) {
  module.def("save_snapshot", &save_tree, "tree"_a, "path"_a, "durable"_a, "replicated"_a,
             "progress"_a.none(), "slab_bytes"_a = SnapshotOptions().slab_bytes,
             "chunk_bytes"_a = SnapshotOptions().chunk_bytes);
  module.def("snapshot_metadata", &metadata_of, "path"_a);
  module.def("fill_tensors", &fill_tensors, "items"_a, "target"_a, "cast"_a, "progress"_a.none());
  module.def("open_snapshot", &open_rank, "path"_a, "rank"_a);
  module.def("read_boxes", &read_boxes_into, "items"_a, "offsets"_a, "target"_a);
  nb::class_<SnapshotPart>(module, "SnapshotPart", "The part of one rank in a snapshot.")
      .def("__init__", &make_snapshot_part, "tree"_a, "rank"_a, "world_size"_a, "shards"_a,
           "replicated"_a, "slab_bytes"_a = SnapshotOptions().slab_bytes,
           "chunk_bytes"_a = SnapshotOptions().chunk_bytes,
           "`shards`: a list of (key, dtype, shape, offsets of the parts, None or (shape of the "
           "mesh, ranks, dim_map)).")
      .def("outline", &SnapshotPart::outline)
      .def("write", &write_snapshot_part, "ticket"_a, "progress"_a.none());
  nb::class_<SnapshotWriter>(module, "SnapshotWriter",
                             "The coordinator's part in a snapshot of several ranks.")
      .def("__init__", &make_snapshot_writer, "path"_a, "outlines"_a, "durable"_a)
      .def("ticket", &SnapshotWriter::ticket)
      .def(
          "publish",
          [](SnapshotWriter& self, const std::vector<std::string>& receipts) {
            without_gil([&] { self.publish(receipts); });
          },
          "receipts"_a);
}

}  // namespace tenfold::python

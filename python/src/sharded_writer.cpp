#include <tenfold/sharded_writer.hpp>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <tenfold/read_boxes.hpp>

#include "arguments.hpp"
#include "array_in.hpp"
#include "base/fail.hpp"
#include "call.hpp"
#include "common.hpp"
#include "formats/shared/problem.hpp"
#include "tree_in.hpp"

namespace tenfold::python {

using namespace nb::literals;

namespace {

/// Returns a dense torch tensor in main memory. It is a copy if `object` is on another device.
Tensor shard_tensor(nb::handle object) {
  std::optional<Tensor> tensor = tensor_of_any_torch(object);
  if (!tensor) {
    throw base::invalid_argument()
        .part("box")
        .expected("a dense torch tensor")
        .found("another object");
  }
  return std::move(*tensor);
}

ShardLayout shard_layout_from(const std::string& name) {
  if (name == "plain") return ShardLayout::plain;
  if (name == "shards") return ShardLayout::shards;
  if (name == "torch") return ShardLayout::torch;
  throw base::invalid_argument()
      .part("layout")
      .expected("\"plain\", \"shards\" or \"torch\"")
      .found("\"", name, "\"");
}

void make_writer(ShardedWriter* self, PathArgument path, const NodeHandle& tree, nb::list boxes,
                 const std::string& layout, bool durable, bool checksums, bool overwrite,
                 std::uint64_t value_bytes, bool accepts_values, std::uint64_t shard_size,
                 const std::string& format) {
  const ShardLayout how = shard_layout_from(layout);
  std::vector<ShardBox> all = shard_boxes_from(boxes);
  const Path target = path_from(path);
  construct_without_gil(self, [&] {
    new (self) ShardedWriter(target, tree.node, std::move(all),
                             {.layout = how,
                              .format = format,
                              .durable = durable,
                              .checksums = checksums,
                              .overwrite = overwrite,
                              .value_bytes = value_bytes,
                              .accepts_values = accepts_values,
                              .shard_size_bytes = shard_size});
  });
}

void publish(ShardedWriter& self, const std::vector<std::string>& receipts,
             const NodeHandle& tree) {
  without_gil([&] { self.publish(receipts, tree.node); });
}

void write(ShardWriter& self, std::size_t first, nb::list tensors, int num_threads) {
  std::vector<Tensor> all;
  all.reserve(nb::len(tensors));
  for (nb::handle tensor : tensors) all.push_back(shard_tensor(tensor));
  monitored(nb::none(), [&](Monitor* monitor) { self.write(first, all, num_threads, monitor); });
}

/// The tensors of a tree, by their index in Node.leaves().
class Boxes {
 public:
  explicit Boxes(const NodeHandle& handle) {
    without_gil([&] {
      handle.node.for_each_leaf([&](const KeyPath&, const TensorDict::Item& item) {
        if (const auto* leaf = std::get_if<Leaf>(&item)) leaves_.push_back(*leaf);
      });
    });
  }

  /// `reads`: a list of (index of the leaf, offsets, torch tensor to read into).
  void read(nb::list reads) const {
    std::vector<BoxRead> boxes;
    boxes.reserve(nb::len(reads));
    for (nb::handle item : reads) {
      const auto fields = nb::cast<nb::tuple>(item);
      boxes.push_back({leaves_.at(nb::cast<std::size_t>(fields[0])), shape_from(fields[1]),
                       shard_tensor(fields[2])});
    }
    monitored(nb::none(), [&](Monitor* monitor) { read_boxes(boxes, 0, monitor); });
  }

 private:
  std::vector<Leaf> leaves_;
};

/// `boxes`: a list of (keys, offsets, sizes).
void verify_stored_boxes(PathArgument path, nb::list boxes) {
  std::vector<BoxCheck> checks;
  checks.reserve(nb::len(boxes));
  for (nb::handle item : boxes) {
    const auto fields = nb::cast<nb::tuple>(item);
    std::vector<KeyPath> keys = key_paths(nb::make_tuple(fields[0]));
    checks.push_back({std::move(keys.at(0)), shape_from(fields[1]), shape_from(fields[2])});
  }
  const Path where = path_from(path);
  const VerifyReport report = monitored(nb::none(), [&](Monitor* monitor) {
    return verify_boxes(where, checks, {.monitor = monitor});
  });
  if (!report.ok()) throw detail::formats::error_of(report);
}

}  // namespace

std::vector<ShardBox> shard_boxes_from(nb::list boxes) {
  std::vector<ShardBox> all;
  all.reserve(nb::len(boxes));
  for (nb::handle item : boxes) {
    const auto fields = nb::cast<nb::tuple>(item);
    all.push_back({nb::cast<std::size_t>(fields[0]), shape_from(fields[1]), shape_from(fields[2]),
                   nb::cast<int>(fields[3])});
  }
  return all;
}

void bind_sharded_writer(nb::module_& module) {
  nb::class_<ShardedWriter>(module, "ShardedWriter",
                            "The coordinator's part of a save by several processes.")
      .def("__init__", &make_writer, "path"_a, "tree"_a, "boxes"_a, "layout"_a, "durable"_a,
           "checksums"_a, "overwrite"_a, "value_bytes"_a, "accepts_values"_a = false,
           "shard_size"_a = 0, "format"_a = "",
           nb::sig("def __init__(self, path: str | bytes | os.PathLike[str] | os.PathLike[bytes], "
                   "tree: Node, "
                   "boxes: list[tuple[int, collections.abc.Sequence[int], "
                   "collections.abc.Sequence[int], int]], layout: str, durable: bool, "
                   "checksums: bool, overwrite: bool, value_bytes: int, "
                   "accepts_values: bool = False, shard_size: int = 0, format: str = '') -> None"),
           "`boxes`: a list of (index of the tensor in leaves(), offsets, sizes, rank).")
      .def(
          "ticket",
          [](const ShardedWriter& self, int rank) {
            return without_gil([&] { return self.ticket(rank); });
          },
          "rank"_a)
      .def(
          "values",
          [](const ShardedWriter& self, int rank) {
            return NodeHandle{without_gil([&] { return self.values(rank); })};
          },
          "rank"_a)
      .def("publish", &publish, "receipts"_a, "tree"_a);
  nb::class_<ShardWriter>(module, "ShardWriter", "One rank's part of a save by several processes.")
      .def(
          "__init__",
          [](ShardWriter* self, const std::string& ticket) {
            construct_without_gil(self, [&] { new (self) ShardWriter(ticket); });
          },
          "ticket"_a)
      .def("__len__", &ShardWriter::num_boxes)
      .def("write", &write, "first"_a, "tensors"_a, "num_threads"_a = 0,
           nb::sig("def write(self, first: int, tensors: list[typing.Any], num_threads: int = 0) "
                   "-> None"))
      .def(
          "add_values",
          [](ShardWriter& self, const NodeHandle& tree, int num_threads) {
            without_gil([&] { self.add_values(tree.node, num_threads); });
          },
          "tree"_a, "num_threads"_a = 0)
      .def("finish", [](ShardWriter& self) { return without_gil([&] { return self.finish(); }); });
  nb::class_<Boxes>(module, "Boxes", "Reads parts of the tensors of a tree.")
      .def(nb::init<const NodeHandle&>(), "tree"_a)
      .def("read", &Boxes::read, "reads"_a,
           nb::sig("def read(self, reads: list[tuple[int, collections.abc.Sequence[int], "
                   "typing.Any]]) -> None"),
           "`reads`: a list of (index of the tensor in leaves(), offsets, tensor to read into).");
  module.def("verify_boxes", &verify_stored_boxes, "path"_a, "boxes"_a,
             nb::sig("def verify_boxes(path: str | bytes | os.PathLike[str] | os.PathLike[bytes], "
                     "boxes: list[tuple[tuple[str, ...], collections.abc.Sequence[int], "
                     "collections.abc.Sequence[int]]]) -> None"),
             "Raises if a block that a box overlaps is damaged. `boxes`: a list of (keys, offsets, "
             "sizes).");
}

}  // namespace tenfold::python

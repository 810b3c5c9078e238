#include <tenfold/archive.hpp>
#include <tenfold/memmap.hpp>

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <utility>

#include "arguments.hpp"
#include "base/fail.hpp"
#include "call.hpp"
#include "core/notes/notes.hpp"
#include "core/tree/leaf_source.hpp"
#include "formats/folder/keys.hpp"
#include "formats/folder/plan.hpp"
#include "io/memmap.hpp"
#include "mapped_file.hpp"
#include "os/fs/unreplaced.hpp"
#include "tree_in.hpp"

namespace tenfold::python {

using namespace nb::literals;

namespace {

void write_tree(const NodeHandle& tree, PathArgument path, int num_threads, bool zeros,
                bool durable, bool in_place, bool existing_ok, bool robust_names,
                std::vector<std::string> already_mapped) {
  const Path where = path_from(path);
  MemmapOptions options{.num_threads = num_threads, .zeros = zeros, .durable = durable};
  options.in_place = in_place;
  options.existing_ok = existing_ok;
  options.robust_names = robust_names;
  options.already_mapped = std::move(already_mapped);
  monitored(nb::none(), [&](Monitor* monitor) {
    options.monitor = monitor;
    write_memmap(tree.node, where, options);
  });
}

/// Returns (keys, path in the folder, file) for each tensor that write_tree() writes. `file`: the
/// file from which the tensor is mapped, or None for a tensor in memory.
nb::list planned_files(const NodeHandle& tree, bool robust_names) {
  namespace folder = detail::formats::folder;
  // By default, plan_tree() plans a metadata sidecar for everything that tensordict's files cannot
  // express, so it throws only for trees that no folder can store.
  const folder::Plan plan =
      without_gil([&] { return folder::plan_tree(tree.node, {.robust_names = robust_names}); });
  nb::list files;
  for (const folder::Plan::File& file : plan.files) {
    if (!file.is_leaf || file.is_sizes) continue;
    const KeyPath path = *keys_of_note_path(file.note_path);
    nb::list keys;
    for (const std::string& key : path) keys.append(text(key));
    nb::object stored = nb::none();
    if (source_of(file.leaf) != nullptr) {
      stored = text(without_gil([&] { return file_of(file.leaf); }));
    }
    files.append(nb::make_tuple(nb::tuple(keys), text(plan.path_of(file)), stored));
  }
  return files;
}

NodeHandle open_tree(PathArgument path, const std::string& mode) {
  const Path where = path_from(path);
  const Mode access = mode_from(mode);
  return {without_gil([&] { return open_memmap(where, access); })};
}

/// Calls memmap_into(). Returns (tree over the mapped file, address of the file's first byte). The
/// address is 0 if all tensors are empty.
nb::tuple write_into(const NodeHandle& tree, PathArgument path, bool zeros, int num_threads) {
  const Path where = path_from(path);
  const TensorDict mapped = monitored(nb::none(), [&](Monitor* monitor) {
    MemmapOptions options{.num_threads = num_threads, .zeros = zeros};
    options.monitor = monitor;
    return memmap_into(tree.node, where, options);
  });
  std::uintptr_t base = 0;
  mapped.for_each_leaf([&](const KeyPath&, const TensorDict::Item& item) {
    const auto* leaf = std::get_if<Leaf>(&item);
    if (base != 0 || leaf == nullptr || leaf->nbytes() == 0) return;
    base = reinterpret_cast<std::uintptr_t>(leaf->tensor().raw_data());
  });
  return nb::make_tuple(NodeHandle{mapped}, base);
}

/// Adds a leaf to a memmap folder, and returns the path of its file. `sizes`: a tensor int64 [n, k]
/// for a nested tensor, or None.
nb::object add_leaf(PathArgument folder, nb::handle key, const std::string& dtype,
                    IntsArgument shape, nb::handle sizes, bool existing_ok, bool robust_names) {
  const Path where = path_from(folder);
  NewLeaf leaf;
  leaf.key = utf8(key);
  leaf.dtype = dtype_from(dtype);
  leaf.shape = shape_from(shape);
  leaf.existing_ok = existing_ok;
  leaf.robust_names = robust_names;
  std::optional<Tensor> lengths;
  if (!sizes.is_none()) {
    lengths = tensor_of_any_torch(sizes);
    if (!lengths) throw base::invalid_argument().part("sizes").expected("a tensor of int64");
    leaf.shape = lengths->shape();
    *lengths = lengths->contiguous();
    leaf.sizes = &*lengths;
  }
  return text(without_gil([&] { return add_memmap_leaf(where, leaf).string(); }));
}

nb::object add_node(PathArgument folder, nb::handle key, IntsArgument batch_size,
                    bool robust_names) {
  const Path where = path_from(folder);
  const std::string name = utf8(key);
  const Shape lengths = shape_from(batch_size);
  return text(
      without_gil([&] { return add_memmap_node(where, name, lengths, robust_names).string(); }));
}

/// `object`: a NonTensorData or NonTensorStack.
void write_value(PathArgument folder, nb::handle key, AnyObject object) {
  const Path where = path_from(folder);
  const std::string name = utf8(key);
  nb::dict entries;
  entries["value"] = std::move(object);
  const TensorDict tree = TreeBuilder(where.string()).root(entries, false);
  const TensorDict::Item item = tree.get("value");
  const auto* value = std::get_if<NonTensor>(&item);
  if (value == nullptr) throw base::invalid_argument().part("value").expected("no tensor");
  without_gil([&] { write_memmap_value(where, name, *value); });
}

void append_rows(PathArgument path, const NodeHandle& rows) {
  const Path where = path_from(path);
  without_gil([&] { append_memmap(where, rows.node); });
}

bool is_archive(PathArgument path) {
  const Path where = path_from(path);
  return without_gil([&] { return is_memmap_archive(where); });
}

void write_archive(const NodeHandle& tree, PathArgument path, int num_threads, bool durable,
                   bool robust_names, bool zeros, int deflate_level, bool all_notes) {
  const Path where = path_from(path);
  ArchiveOptions options{.durable = durable, .robust_names = robust_names, .zeros = zeros};
  options.all_notes = all_notes;
  options.deflate_level = deflate_level;
  options.num_threads = num_threads;
  monitored(nb::none(), [&](Monitor* monitor) {
    options.monitor = monitor;
    write_memmap_archive(tree.node, where, options);
  });
}

void pack(PathArgument folder, PathArgument archive, int deflate_level, ProgressArgument progress) {
  const Path from = path_from(folder);
  const Path to = path_from(archive);
  ArchiveOptions options{.deflate_level = deflate_level};
  monitored(std::move(progress), [&](Monitor* monitor) {
    options.monitor = monitor;
    pack_memmap(from, to, options);
  });
}

void unpack(PathArgument archive, PathArgument folder, ProgressArgument progress) {
  const Path from = path_from(archive);
  const Path to = path_from(folder);
  ArchiveOptions options;
  monitored(std::move(progress), [&](Monitor* monitor) {
    options.monitor = monitor;
    unpack_memmap(from, to, options);
  });
}

void refresh_checksums(PathArgument path, ProgressArgument progress) {
  const Path where = path_from(path);
  monitored(std::move(progress),
            [&](Monitor* monitor) { refresh_archive_checksums(where, monitor); });
}

}  // namespace

void bind_memmap(nb::module_& module) {
  module.def("write_memmap", &write_tree, "tree"_a, "path"_a, nb::kw_only(), "num_threads"_a,
             "zeros"_a, "durable"_a, "in_place"_a, "existing_ok"_a, "robust_names"_a,
             "already_mapped"_a);
  module.def("planned_files", &planned_files, "tree"_a, "robust_names"_a,
             nb::sig("def planned_files(tree: Node, robust_names: bool) -> "
                     "list[tuple[tuple[str, ...], str, str | None]]"));
  module.def("open_memmap", &open_tree, "path"_a, "mode"_a);
  nb::class_<os::NamedEntry>(module, "NamedEntry")
      .def(
          "__init__",
          [](os::NamedEntry* self, PathArgument path) {
            new (self) os::NamedEntry(path_from(path));
          },
          "path"_a)
      .def("is_current", &os::NamedEntry::is_current);
  module.attr("MAX_READS") = os::kMaxReads;
  module.def("is_memmap_archive", &is_archive, "path"_a);
  module.def("write_memmap_archive", &write_archive, "tree"_a, "path"_a, nb::kw_only(),
             "num_threads"_a, "durable"_a, "robust_names"_a, "zeros"_a, "deflate_level"_a,
             "all_notes"_a);
  module.def("pack_memmap", &pack, "folder"_a, "archive"_a, "deflate_level"_a, "progress"_a.none());
  module.def("unpack_memmap", &unpack, "archive"_a, "folder"_a, "progress"_a.none());
  module.def("refresh_archive_checksums", &refresh_checksums, "path"_a, "progress"_a.none());
  module.def("memmap_into", &write_into, "tree"_a, "path"_a, "zeros"_a, "num_threads"_a,
             nb::sig("def memmap_into(tree: Node, path: str | bytes | os.PathLike[str] | "
                     "os.PathLike[bytes], zeros: bool, num_threads: int) -> "
                     "tuple[Node, int]"));
  module.def(
      "add_memmap_leaf", &add_leaf, "folder"_a, "key"_a, "dtype"_a, "shape"_a, "sizes"_a.none(),
      "existing_ok"_a, "robust_names"_a,
      nb::sig("def add_memmap_leaf(folder: str | bytes | os.PathLike[str] | os.PathLike[bytes], "
              "key: str, dtype: str, shape: collections.abc.Sequence[int], "
              "sizes: object | None, existing_ok: bool, robust_names: bool) "
              "-> str"));
  module.def("add_memmap_node", &add_node, "folder"_a, "key"_a, "batch_size"_a, "robust_names"_a,
             nb::sig("def add_memmap_node(folder: str | bytes | os.PathLike[str] | "
                     "os.PathLike[bytes], key: str, batch_size: collections.abc.Sequence[int], "
                     "robust_names: bool) -> str"));
  module.def("write_memmap_value", &write_value, "folder"_a, "key"_a, "value"_a);
  module.def("append_memmap", &append_rows, "path"_a, "rows"_a);
  module.def(
      "encode_key",
      [](nb::str key) { return text(detail::formats::folder::encode_key(utf8(key))); }, "key"_a,
      "The name of the file (without suffix) or folder of a key.");
}

}  // namespace tenfold::python

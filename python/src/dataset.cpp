#include <tenfold/arrow.hpp>
#include <tenfold/dataset.hpp>
#include <tenfold/parts.hpp>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "arguments.hpp"
#include "array_in.hpp"
#include "array_out.hpp"
#include "batch_out.hpp"
#include "call.hpp"
#include "dataset/dataset_state.hpp"
#include "dataset/padding.hpp"
#include "dataset/row_bytes.hpp"
#include "ingest/arrow/abi.hpp"
#include "os/fs/directory.hpp"
#include "os/fs/file.hpp"
#include "os/fs/lease.hpp"
#include "rows_in.hpp"
#include "tree_in.hpp"

namespace tenfold::python {

using namespace nb::literals;

namespace {

[[noreturn]] void raise(PyObject* type, const std::string& message) {
  PyErr_SetObject(type, text(message).ptr());
  throw nb::python_error();
}

std::vector<std::int64_t> ints_of(nb::handle sequence) {
  std::vector<std::int64_t> values;
  values.reserve(nb::len(sequence));
  for (const nb::handle item : sequence) {
    const Py_ssize_t value = PyNumber_AsSsize_t(item.ptr(), PyExc_IndexError);
    if (value == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
    values.push_back(value);
  }
  return values;
}

/// The elements of an object with a buffer of int64, such as a numpy array or an array.array.
std::vector<std::int64_t> ints_of_buffer(nb::handle object) {
  Py_buffer view;
  if (PyObject_GetBuffer(object.ptr(), &view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) != 0) {
    throw nb::python_error();
  }
  const std::string format = view.format == nullptr ? "B" : view.format;
  const int ndim = view.ndim;
  const bool fits = (format == "l" || format == "q") && view.itemsize == 8 && ndim == 1;
  std::vector<std::int64_t> values(fits ? static_cast<std::size_t>(view.len) / 8 : 0);
  if (!values.empty()) std::memcpy(values.data(), view.buf, values.size() * 8);
  PyBuffer_Release(&view);
  if (!fits) {
    raise(PyExc_TypeError, "indices: expected int64 of one dimension, found format \"" + format +
                               "\" with ndim " + std::to_string(ndim));
  }
  return values;
}

/// (boot ID, device, inode, creation time in ns) of the opened folder or file. None if the data set
/// was not opened from exactly one path, such as the rows of a tree, or joined data sets.
AnyObject identity_of(const DatasetHandle& self) {
  const auto state = state_of(self.dataset);
  if (!state->origin) return nb::none();
  const os::FileIdentity& found = *state->origin;
  const auto* boot = reinterpret_cast<const char*>(found.boot.data());
  return nb::make_tuple(nb::bytes(boot, found.boot.size()), found.device, found.inode,
                        found.born_ns);
}

AnyObject column_of(const DatasetHandle& self, const std::string& name) {
  const Tensor tensor = without_gil([&] { return self.dataset.column(name); });
  return array_of(tensor, name);
}

AnyObject rows_of(const DatasetHandle& self, AnyObject positions, AnyObject pad, AnyObject ragged) {
  const auto rows = positions_from(positions, self.dataset.size());
  const BatchOptions options = batch_options_from(pad);
  const Batch batch = without_gil([&] { return self.dataset.rows(rows, options); });
  return BatchMaker(self.dataset.schema(), std::move(ragged)).batch(batch);
}

AnyObject range_of(const DatasetHandle& self, std::int64_t begin, std::int64_t end, AnyObject pad,
                   AnyObject ragged) {
  const BatchOptions options = batch_options_from(pad);
  const Batch batch = without_gil([&] { return self.dataset.rows(begin, end, options); });
  return BatchMaker(self.dataset.schema(), std::move(ragged)).batch(batch);
}

AnyObject row_of(const DatasetHandle& self, std::int64_t position) {
  const std::int64_t size = self.dataset.size();
  if (position < -size || position >= size) {
    raise(PyExc_IndexError, "row " + std::to_string(position) + ": expected an index in [" +
                                std::to_string(-size) + ", " + std::to_string(size) + ")");
  }
  const std::int64_t row = position < 0 ? position + size : position;
  const Batch batch = without_gil([&] { return self.dataset.rows(std::span(&row, 1)); });
  return BatchMaker(self.dataset.schema(), nb::none()).row(batch);
}

void release_stream(PyObject* capsule) noexcept {
  auto* stream =
      static_cast<ArrowArrayStream*>(PyCapsule_GetPointer(capsule, "arrow_array_stream"));
  if (stream->release != nullptr) stream->release(stream);
  delete stream;
}

/// The capsule of `__arrow_c_stream__`.
AnyObject arrow_stream(const DatasetHandle& self, bool copy) {
  auto stream = std::make_unique<ArrowArrayStream>();
  ArrowExportOptions options;
  options.copy = copy;
  without_gil([&] { export_arrow_stream(self.dataset, stream.get(), options); });
  nb::object capsule = nb::steal(PyCapsule_New(stream.get(), "arrow_array_stream", release_stream));
  if (!capsule.is_valid()) {
    stream->release(stream.get());
    throw nb::python_error();
  }
  static_cast<void>(stream.release());
  return capsule;
}

void update(DatasetHandle& self, AnyObject positions, const Batch& rows) {
  const auto values = positions_from(positions, self.dataset.size());
  without_gil([&] { self.dataset.update(values, rows); });
}

DatasetHandle create_at(PathArgument path, const std::string& schema, std::int64_t num_rows,
                        std::int64_t capacity) {
  const Path target = path_from(path);
  return {without_gil([&] {
    CreateOptions options;
    options.num_rows = num_rows;
    options.capacity = capacity;
    return create(target, Schema::from_json(schema, "schema"), options);
  })};
}

/// Total size in bytes of the data set's columns in the opened tree. Counts all rows of the tree,
/// even if the data set is a view of a part of them.
std::uint64_t num_bytes_of(const DatasetHandle& self) {
  const TensorDict& tree = self.dataset.tree();
  std::uint64_t total = 0;
  for (const Column& column : self.dataset.schema().columns()) {
    for (const KeyPath* path :
         {&column.leaf, &column.end_leaf, &column.item_end_leaf, &column.valid_leaf}) {
      if (path->empty()) continue;
      const TensorDict::Item item = tree.get(*path);
      if (const auto* leaf = std::get_if<Leaf>(&item)) total += leaf->nbytes();
    }
  }
  return total;
}

/// The lease of a name in a folder, held until release(), the end of this object or of the process.
struct LeaseHandle {
  std::optional<os::Lease> lease;
};

LeaseHandle acquire_lease(nb::object folder, const std::string& name) {
  const Path path = path_from(folder);
  return {without_gil([&] {
    auto lease = os::Lease::try_acquire(os::Directory::open(path), name);
    if (lease) return std::optional(std::move(*lease));
    throw Error::io(EBUSY, (path / name).string(), "another process holds the lease");
  })};
}

/// Copies the permission bits of the folder `like` to `folder`, and the owner and group if
/// possible.
void copy_permissions(PathArgument like, PathArgument folder) {
  const Path source = path_from(like);
  const Path target = path_from(folder);
  without_gil([&] { os::Directory::open(target).copy_permissions(os::file_info(source)); });
}

DatasetHandle create_parts_at(PathArgument path, const std::string& schema) {
  const Path target = path_from(path);
  return {without_gil([&] { return create_parts(target, Schema::from_json(schema, "schema")); })};
}

void commit_parts_at(PathArgument path, const std::vector<std::string>& parts, bool durable,
                     ProgressArgument progress) {
  const Path target = path_from(path);
  CommitPartsOptions options;
  options.parts = parts;
  options.durable = durable;
  monitored(std::move(progress), [&](Monitor* monitor) {
    options.monitor = monitor;
    commit_parts(target, options);
  });
}

void compact_at(PathArgument path, bool durable, int num_threads, ProgressArgument progress) {
  const Path target = path_from(path);
  CompactOptions options;
  options.durable = durable;
  options.num_threads = num_threads;
  monitored(std::move(progress), [&](Monitor* monitor) {
    options.monitor = monitor;
    compact(target, options);
  });
}

nb::str part_path_of(PathArgument path, std::int64_t index, std::int64_t count) {
  const Path target = path_from(path);
  return text(without_gil([&] { return part_path(target, index, count); }).native());
}

/// Checks a schema. Error messages call the schema `where`. Returns the JSON that the engine would
/// write.
nb::str checked_schema(AnyObject json, const std::string& where) {
  return text(Schema::from_json(utf8(json), where).to_json());
}

std::vector<Dataset> datasets_of(const std::vector<DatasetHandle>& handles) {
  std::vector<Dataset> made;
  made.reserve(handles.size());
  for (const DatasetHandle& handle : handles) made.push_back(handle.dataset);
  return made;
}

std::vector<DatasetHandle> split(const DatasetHandle& self, const std::vector<std::int64_t>& sizes,
                                 std::optional<std::uint64_t> seed) {
  std::vector<DatasetHandle> parts;
  for (Dataset& part : self.dataset.split(sizes, seed)) parts.push_back({std::move(part)});
  return parts;
}

Tensor positions_tensor(nb::handle positions, std::int64_t size) {
  return Tensor::from(std::span<const std::int64_t>(positions_from(positions, size)));
}

Tensor permuted(const Permutation& self, std::int64_t begin, std::int64_t end) {
  const Shape shape = {end - begin};
  const auto size_bytes = static_cast<std::size_t>(nbytes_of(DType::int64, shape));
  constexpr std::size_t kLargeBytes = std::size_t{1} << 20U;
  // A large buffer comes from the pool without being zeroed, because fill() writes every element.
  const Tensor rows = size_bytes < kLargeBytes
                          ? Tensor::zeros(DType::int64, shape)
                          : Tensor(DType::int64, shape, {1}, BufferPool().take(size_bytes), 0);
  if (size_bytes == 0) return rows;
  auto* into = reinterpret_cast<std::int64_t*>(rows.mutable_raw_data());
  self.fill(begin, {into, static_cast<std::size_t>(end - begin)});
  return rows;
}

}  // namespace

std::vector<std::int64_t> positions_from(nb::handle positions, std::int64_t size,
                                         const char* what) {
  std::vector<std::int64_t> values;
  if (PyList_Check(positions.ptr()) || PyTuple_Check(positions.ptr())) {
    values = ints_of(positions);
  } else if (is_torch_tensor(positions)) {
    const auto tensor = tensor_of_any_torch(positions);
    if (!tensor) raise(PyExc_TypeError, "indices: expected a dense tensor, found another layout");
    if (tensor->dtype() != DType::int64 || tensor->ndim() != 1) {
      raise(PyExc_TypeError, "indices: expected int64 of one dimension, found " +
                                 to_string(tensor->dtype()) + " with ndim " +
                                 std::to_string(tensor->ndim()));
    }
    const Tensor contiguous = tensor->contiguous();
    const auto all = contiguous.span<std::int64_t>();
    values.assign(all.begin(), all.end());
  } else {
    values = ints_of_buffer(positions);
  }
  for (std::int64_t& value : values) {
    if (value < -size || value >= size) {
      raise(PyExc_IndexError, std::string(what) + " " + std::to_string(value) +
                                  ": expected an index in [" + std::to_string(-size) + ", " +
                                  std::to_string(size) + ")");
    }
    if (value < 0) value += size;
  }
  return values;
}

PadValue pad_value_from(nb::handle value) {
  if (PyFloat_Check(value.ptr())) return nb::cast<double>(value);
  return nb::cast<std::int64_t>(value);
}

/// Throws Error(invalid_argument) if elements of `dtype` cannot represent the padding value of the
/// column `name`.
void check_pad(const std::string& name, const std::string& dtype, nb::handle value) {
  Column column;
  column.path = {name};
  column.dtype = dtype_from(dtype);
  const Padding checked(column, pad_value_from(value));
}

BatchOptions batch_options_from(nb::handle pad) {
  BatchOptions options;
  options.num_threads = 0;
  for (const auto& [name, value] : nb::cast<nb::dict>(pad)) {
    if (name.is_none()) {
      options.pad_all = pad_value_from(value);
    } else {
      options.pad.emplace(utf8(name), pad_value_from(value));
    }
  }
  return options;
}

void bind_dataset(nb::module_& module) {
  module.def("check_pad", check_pad, "name"_a, "dtype"_a, "value"_a);
  module.def("checked_schema", checked_schema, "json"_a, "where"_a);
  nb::class_<LeaseHandle>(module, "Lease")
      .def_static("acquire", acquire_lease, "folder"_a, "name"_a)
      .def("is_held",
           [](const LeaseHandle& self) {
             return without_gil([&] { return self.lease && self.lease->is_held(); });
           })
      .def("release", [](LeaseHandle& self) { self.lease.reset(); });
  module.def("copy_permissions", copy_permissions, "like"_a, "folder"_a);
  module.def("commit_parts", commit_parts_at, "path"_a, "parts"_a, "durable"_a,
             "progress"_a.none());
  module.def("compact", compact_at, "path"_a, "durable"_a, "num_threads"_a, "progress"_a.none());
  module.def("part_path", part_path_of, "path"_a, "index"_a, "count"_a);
  nb::class_<Batch>(module, "Batch")
      .def("__len__", &Batch::num_rows)
      .def("rows", rows_between, "begin"_a, "end"_a);
  nb::class_<DatasetHandle>(module, "Dataset")
      .def_static("open",
                  [](const NodeHandle& tree) {
                    return DatasetHandle{without_gil([&] { return Dataset(tree.node); })};
                  })
      .def_static("open_path",
                  [](PathArgument path, const std::string& mode) {
                    const Path source = path_from(path);
                    const Mode how = mode_from(mode);
                    return DatasetHandle{without_gil([&] { return Dataset(source, how); })};
                  })
      .def_static("create", create_at, "path"_a, "schema"_a, "num_rows"_a, "capacity"_a)
      .def_static("create_parts", create_parts_at, "path"_a, "schema"_a)
      .def(
          "batch",
          [](const DatasetHandle& self, std::int64_t num_rows, AnyObject columns,
             std::int64_t first_row, bool some) {
            return batch_from(self.dataset.schema(), num_rows, columns, first_row, some);
          },
          "num_rows"_a, "columns"_a, "first_row"_a, "some"_a)
      .def("batch_of_tensors",
           [](const DatasetHandle& self, nb::dict rows) {
             return plain_batch_from(self.dataset.schema(), rows);
           })
      .def("append",
           [](DatasetHandle& self, const Batch& rows) {
             return without_gil([&] { return self.dataset.append(rows); });
           })
      .def("update", update, "positions"_a, "rows"_a)
      .def("flush", [](DatasetHandle& self) { without_gil([&] { self.dataset.flush(); }); })
      .def("close", [](DatasetHandle& self) { without_gil([&] { self.dataset.close(); }); })
      .def("refresh", [](DatasetHandle& self) { without_gil([&] { self.dataset.refresh(); }); })
      .def("capacity", [](const DatasetHandle& self) { return self.dataset.capacity(); })
      .def("cursor", [](const DatasetHandle& self) { return self.dataset.cursor(); })
      .def("__len__", [](const DatasetHandle& self) { return self.dataset.size(); })
      .def(
          "num_bytes",
          [](const DatasetHandle& self) { return without_gil([&] { return num_bytes_of(self); }); })
      .def("identity", identity_of)
      .def("schema_json",
           [](const DatasetHandle& self) { return text(self.dataset.schema().to_json()); })
      .def("column", column_of, "name"_a)
      .def(
          "check_pads",
          [](const DatasetHandle& self, nb::dict pad) {
            check_pads(self.dataset.schema(), batch_options_from(pad));
          },
          "pad"_a)
      .def("rows", rows_of, "positions"_a, "pad"_a, "ragged"_a.none())
      .def("range_rows", range_of, "begin"_a, "end"_a, "pad"_a, "ragged"_a.none())
      .def("row", row_of, "position"_a)
      .def("range", [](const DatasetHandle& self, std::int64_t begin,
                       std::int64_t end) { return DatasetHandle{self.dataset.range(begin, end)}; })
      .def("select",
           [](const DatasetHandle& self, const std::vector<std::string>& names) {
             return DatasetHandle{self.dataset.select(names)};
           })
      .def("rename",
           [](const DatasetHandle& self,
              const std::vector<std::pair<std::string, std::vector<std::string>>>& names) {
             return DatasetHandle{self.dataset.rename(names)};
           })
      .def("arrow_stream", arrow_stream, "copy"_a)
      .def("take",
           [](const DatasetHandle& self, AnyObject positions) {
             return DatasetHandle{
                 self.dataset.take(positions_tensor(positions, self.dataset.size()))};
           })
      .def("split", split, "sizes"_a, "seed"_a.none())
      .def("shard",
           [](const DatasetHandle& self, std::int64_t rank, std::int64_t world_size) {
             return DatasetHandle{self.dataset.shard(rank, world_size)};
           })
      .def_static("concat",
                  [](const std::vector<DatasetHandle>& parts) {
                    return DatasetHandle{Dataset::concat(datasets_of(parts))};
                  })
      .def_static(
          "mix", [](const std::vector<DatasetHandle>& sources, const std::vector<double>& weights) {
            return DatasetHandle{Dataset::mix(datasets_of(sources), weights)};
          });
  nb::class_<Permutation>(module, "Permutation")
      .def(nb::init<std::int64_t, std::uint64_t, std::uint64_t>())
      .def("__len__", &Permutation::size)
      .def("at", &Permutation::operator[])
      .def("fill", [](const Permutation& self, std::int64_t begin, std::int64_t end) -> AnyObject {
        return array_of(without_gil([&] { return permuted(self, begin, end); }), "permutation");
      });
}

}  // namespace tenfold::python

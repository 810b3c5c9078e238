#include "mapped_file.hpp"
#include "arguments.hpp"

#include <nanobind/stl/string.h>

#include <cerrno>
#include <optional>
#include <string>
#include <utility>

#include "array_out.hpp"
#include "base/fail.hpp"
#include "base/text.hpp"
#include "call.hpp"
#include "core/tensor/strided_copy.hpp"
#include "core/tree/leaf_source.hpp"
#include "formats/folder/leaf_source.hpp"
#include "os/fs/directory.hpp"
#include "os/fs/file.hpp"
#include "os/memory/mapping.hpp"
#include "torch_api.hpp"
#include "tree_in.hpp"

namespace tenfold::python {

using namespace nb::literals;

namespace {

std::string_view mode_name(Mode mode) {
  return mode == Mode::write_through ? "r+" : mode == Mode::read ? "r" : "c";
}

[[noreturn]] void throw_too_short(const std::string& path, std::uint64_t expected,
                                  std::uint64_t found) {
  throw base::corrupt(path)
      .problem("the file is too short")
      .expected(expected, " bytes")
      .found(found)
      .remedy("it may be truncated");
}

std::optional<os::FileInfo> info_of(const std::string& path) {
  try {
    return os::file_info(path);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::file_not_found) throw;
    return std::nullopt;
  }
}

/// Maps part of a file. Returns (tensor, MappedFile). `strides`: None for row-major. `handler`: as
/// in MappedFile; None for a file with a name. `identity`: the (device, inode) that the file must
/// have, or None.
nb::tuple map_tensor(PathArgument path, std::uint64_t offset_bytes, const std::string& dtype,
                     IntsArgument shape, IntsArgument strides, const std::string& mode,
                     AnyObject handler, AnyObject identity) {
  const Path where = path_from(path);
  const DType kind = dtype_from(dtype);
  Shape lengths = shape_from(shape);
  Shape steps = strides.is_none() ? contiguous_strides(lengths) : shape_from(strides);
  const Mode access = mode_from(mode);
  const Tensor layout(kind, lengths, steps,
                      Buffer({static_cast<std::byte*>(nullptr), SIZE_MAX / 2}, nullptr), 0);
  const std::uint64_t size_bytes = spanned_bytes(layout);
  std::optional<std::pair<std::uint64_t, std::uint64_t>> expected;
  if (!identity.is_none()) {
    expected.emplace(nb::cast<std::uint64_t>(identity[0]), nb::cast<std::uint64_t>(identity[1]));
  }
  MappedFile mapped;
  mapped.mode = access;
  const Tensor tensor = without_gil([&] {
    const os::File file = access == Mode::write_through ? os::File::open_read_write(where)
                                                        : os::File::open_read(where);
    const os::FileInfo info = file.info();
    if (expected && *expected != std::pair(info.device, info.inode)) {
      throw Error::io(ESTALE, where.string())
          .problem("the file was replaced after the tensor was mapped")
          .remedy("open the tensor from the path again");
    }
    if (info.size_bytes < offset_bytes + size_bytes) {
      throw_too_short(where.string(), offset_bytes + size_bytes, info.size_bytes);
    }
    mapped.identity.emplace(info.device, info.inode);
    mapped.inode = info.inode;
    Buffer buffer = size_bytes == 0
                        ? Buffer()
                        : os::map_file(file, offset_bytes, size_bytes,
                                       access == Mode::write_through ? os::MapKind::shared_write
                                                                     : os::MapKind::private_copy);
    return Tensor(kind, lengths, steps, std::move(buffer), 0);
  });
  mapped.base = reinterpret_cast<std::uintptr_t>(tensor.raw_data()) - offset_bytes;
  if (handler.is_none()) {
    mapped.path = os::absolute(where).string();
  } else {
    mapped.handler = std::move(handler);
  }
  return nb::make_tuple(torch_tensor_of(tensor, where.string()), nb::cast(std::move(mapped)));
}

/// Creates a file of `size_bytes` zeros. With `existing_ok`, extends an existing file that is
/// shorter, and does not change a longer one. The new part is sparse: no disk space is reserved.
/// Throws Error(io) for an entry that is not a regular file and, without `existing_ok`, for an
/// existing file.
void reserve_file(PathArgument path, std::uint64_t size_bytes, bool existing_ok) {
  const Path where = path_from(path);
  without_gil([&] {
    os::Parent parent = os::open_parent(where, false);
    const auto found = parent.directory.entry_info(parent.name);
    const std::string display = where.string();
    if (found && !found->is_regular && !found->is_directory) {
      throw Error::io(ELOOP, display)
          .problem("refusing to write memory-mapped tensor to an entry that is not a regular file")
          .expected("a file or nothing")
          .found("a symlink, device, FIFO or socket");
    }
    if (found && !existing_ok) {
      throw Error::io(EEXIST, display)
          .problem("the file already exists")
          .expected("none")
          .remedy("pass existsok=True");
    }
    os::File file = found ? os::File::open_read_write_at(parent.directory, parent.name)
                          : os::File::create_at(parent.directory, parent.name);
    if (file.size_bytes() < size_bytes) file.truncate(size_bytes);
  });
}

/// Writes the changes of a mapped tensor to the disk, and waits until they are durable (msync).
/// `file`: the file's name in errors.
void sync_tensor(AnyObject tensor, const std::string& file) {
  const std::optional<Tensor> mapped = tensor_of_any_torch(tensor);
  if (!mapped) {
    throw base::invalid_argument().part("flush").expected("a tensor in main memory");
  }
  without_gil([&] { os::sync_mapping(mapped->buffer(), file); });
}

}  // namespace

std::string file_of(const Leaf& leaf) {
  // where() returns the name that encodes the key, but the file may be named by the key itself.
  auto* source = dynamic_cast<detail::formats::folder::FolderSource*>(source_of(leaf).get());
  if (source == nullptr) return source_of(leaf)->where(leaf).path;
  return source->folder()->display() + "/" + source->file_of(leaf);
}

MappedFile MappedFile::of_leaf(const Leaf& leaf, const Tensor& tensor, Mode mode) {
  MappedFile mapped;
  mapped.path = file_of(leaf);
  mapped.mode = mode;
  mapped.base = reinterpret_cast<std::uintptr_t>(tensor.raw_data());
  if (const os::Mapping* mapping = os::mapping_of(tensor.buffer())) mapped.inode = mapping->inode;
  return mapped;
}

void check_not_truncated(nb::handle object, const Tensor& tensor) {
  const nb::object attribute = nb::getattr(object, "_file", nb::none());
  const MappedFile* mapped = nullptr;
  if (!nb::try_cast(attribute, mapped) || mapped == nullptr || mapped->path.empty()) return;
  if (tensor.numel() == 0) return;
  const auto address = reinterpret_cast<std::uintptr_t>(tensor.raw_data());
  const std::uint64_t needed = address - mapped->base + spanned_bytes(tensor);
  const auto found = without_gil([&] { return info_of(mapped->path); });
  // If the path now names another file, the mapped file was replaced, not truncated.
  if (!found || found->size_bytes >= needed || found->inode != mapped->inode) return;
  throw_too_short(mapped->path, needed, found->size_bytes);
}

void bind_mapped_file(nb::module_& module) {
  nb::class_<MappedFile>(module, "MappedFile", "The file of a MemoryMappedTensor.")
      .def(
          "__init__",
          [](MappedFile* self, PathArgument path, const std::string& mode, std::uintptr_t base,
             AnyObject handler) {
            MappedFile made;
            made.mode = mode_from(mode);
            made.base = base;
            if (!handler.is_none()) made.handler = std::move(handler);
            if (!path.is_none()) {
              made.path = path_from(path).string();
              const auto found = without_gil([&] { return info_of(made.path); });
              if (found) made.inode = found->inode;
            }
            // Construct `*self` last, because nanobind does not destroy the object if __init__
            // raises.
            new (self) MappedFile(std::move(made));
          },
          "path"_a.none(), "mode"_a, "base"_a, "handler"_a.none(),
          "`path` is absolute; None: a file without a name, which `handler` keeps open.")
      .def_prop_ro("path",
                   [](const MappedFile& self) -> AnyObject {
                     return self.path.empty() ? nb::none() : nb::object(text(self.path));
                   })
      .def_prop_ro("mode", [](const MappedFile& self) { return text(mode_name(self.mode)); })
      .def_prop_ro("base", [](const MappedFile& self) { return self.base; })
      .def_prop_ro("identity",
                   [](const MappedFile& self) -> AnyObject {
                     if (!self.identity) return nb::none();
                     return nb::make_tuple(self.identity->first, self.identity->second);
                   })
      .def_prop_ro("handler", [](const MappedFile& self) -> AnyObject {
        return self.handler.is_valid() ? self.handler : nb::none();
      });
  module.def(
      "map_tensor", &map_tensor, "path"_a, "offset_bytes"_a, "dtype"_a, "shape"_a,
      "strides"_a.none(), "mode"_a, "handler"_a.none(), "identity"_a.none(),
      nb::sig("def map_tensor(path: str | bytes | os.PathLike[str] | os.PathLike[bytes], "
              "offset_bytes: int, dtype: str, shape: collections.abc.Sequence[int], "
              "strides: collections.abc.Sequence[int] | None, mode: str, handler: typing.Any, "
              "identity: typing.Any) -> tuple[typing.Any, MappedFile]"),
      "Maps part of a file. Returns (tensor, MappedFile).");
  module.def("reserve_file", &reserve_file, "path"_a, "size_bytes"_a, "existing_ok"_a);
  module.def("sync_tensor", &sync_tensor, "tensor"_a, "file"_a);
  module.def("set_mapped_type", &set_mapped_type, "type"_a,
             nb::sig("def set_mapped_type(type: type) -> None"));
}

}  // namespace tenfold::python

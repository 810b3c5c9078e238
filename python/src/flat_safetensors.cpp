#include <nanobind/stl/string.h>

#include <utility>

#include "arguments.hpp"
#include "call.hpp"
#include "io/flat_safetensors.hpp"

namespace tenfold::python {

using namespace nb::literals;

namespace {

FlatMetadata metadata_from(nb::dict pairs) {
  FlatMetadata metadata;
  for (const auto& [key, value] : pairs) metadata.insert_or_assign(utf8(key), utf8(value));
  return metadata;
}

/// Returns (node, [(name, dtype, shape), ...] in the order of the bytes, metadata).
nb::tuple to_python(FlatSafetensors flat) {
  nb::list entries;
  for (const FlatSafetensors::Entry& entry : flat.entries) {
    entries.append(nb::make_tuple(text(entry.name), text(entry.dtype), tuple_of(entry.shape)));
  }
  nb::dict metadata;
  for (const auto& [key, value] : flat.metadata) metadata[text(key)] = text(value);
  return nb::make_tuple(NodeHandle{std::move(flat.tree)}, entries, metadata);
}

nb::tuple open_file(PathArgument path) {
  const Path where = path_from(path);
  return to_python(without_gil([&] { return open_flat_safetensors(where); }));
}

nb::tuple read_bytes(nb::bytes data) {
  const std::span bytes(reinterpret_cast<const std::byte*>(data.c_str()), data.size());
  return to_python(without_gil([&] { return read_flat_safetensors(bytes, "safetensors"); }));
}

void save_file(const NodeHandle& tree, nb::dict metadata, PathArgument path) {
  const Path where = path_from(path);
  const FlatMetadata pairs = metadata_from(std::move(metadata));
  SaveOptions options;
  monitored(nb::none(), [&](Monitor* monitor) {
    options.monitor = monitor;
    save_flat_safetensors(tree.node, pairs, where, options);
  });
}

nb::bytes bytes_of(const NodeHandle& tree, nb::dict metadata) {
  const FlatMetadata pairs = metadata_from(std::move(metadata));
  const std::vector<std::byte> bytes =
      without_gil([&] { return flat_safetensors_bytes(tree.node, pairs); });
  return nb::bytes(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

}  // namespace

void bind_flat_safetensors(nb::module_& module) {
  module.def("open_flat_safetensors", open_file, "path"_a);
  module.def("read_flat_safetensors", read_bytes, "data"_a);
  module.def("save_flat_safetensors", save_file, "tree"_a, "metadata"_a, "path"_a);
  module.def("flat_safetensors_bytes", bytes_of, "tree"_a, "metadata"_a);
}

}  // namespace tenfold::python

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "array_out.hpp"
#include "base/fail.hpp"
#include "call.hpp"
#include "core/tree/node.hpp"
#include "core/value/value_json.hpp"
#include "tree_in.hpp"
#include "tree_out.hpp"

namespace tenfold::python {

using namespace nb::literals;

/// The inverse of key_types_of(), for the case that it returned a dict.
static TypedKeys typed_keys_from(nb::handle dict) {
  TypedKeys keys;
  for (const auto& [key, own] : nb::cast<nb::dict>(dict)) {
    std::optional<Value> typed = typed_key(own);
    if (typed) keys.emplace_back(utf8(key), *std::move(typed));
  }
  std::ranges::sort(keys, {}, [](const auto& key) -> const std::string& { return key.first; });
  if (!are_valid(keys)) {
    throw base::invalid_argument()
        .part("keys of a dict")
        .expected("each key under its str()")
        .found("a key under another string");
  }
  return keys;
}

/// Indices of the fields of NodeInfo in _interop/node_info.py. Access by index is faster than by
/// name.
enum NodeField : std::size_t {
  kKind,
  kIntKeys,
  kBatchSize,
  kNames,
  kClassName,
  kStackDim,
  kStackDimName,
  kDevice,
  kSchema,
  kMetadata,
  kLayout,
  kDenseShape,
  kIsCoalesced,
  kModuleVersions,
  kIsBare,
};

NodeInfo node_info_from(nb::handle info) {
  const nb::tuple fields = nb::cast<nb::tuple>(info);
  const auto field = [&](std::size_t at) { return nb::object(fields[at]); };
  NodeInfo made;
  const auto kind_name = nb::cast<std::string>(field(kKind));
  const std::optional<NodeKind> kind = node_kind_from_name(kind_name);
  if (!kind) {
    throw base::invalid_argument()
        .problem("no such kind of node")
        .expected("a name such as \"dict\"")
        .found("\"", kind_name, "\"");
  }
  made.kind = *kind;
  const nb::object keys = field(kIntKeys);
  if (PyBool_Check(keys.ptr())) {
    made.int_keys = nb::cast<bool>(keys);
  } else {
    made.typed_keys = typed_keys_from(keys);
  }
  made.batch_size = shape_from(field(kBatchSize));
  for (const nb::handle dim_name : field(kNames)) {
    if (dim_name.is_none()) {
      made.names.emplace_back();
    } else {
      made.names.emplace_back(utf8(dim_name));
    }
  }
  made.class_name = utf8(field(kClassName));
  made.stack_dim = nb::cast<std::int64_t>(field(kStackDim));
  const nb::object stack_dim_name = field(kStackDimName);
  if (!stack_dim_name.is_none()) made.stack_dim_name = utf8(stack_dim_name);
  made.device = utf8(field(kDevice));
  const nb::object schema = field(kSchema);
  if (!schema.is_none()) made.schema = parse_value(utf8(schema), {"", "schema"});
  for (const auto& [key, value] : nb::cast<nb::dict>(field(kMetadata))) {
    made.metadata.emplace(utf8(key), utf8(value));
  }
  made.layout = utf8(field(kLayout));
  made.dense_shape = shape_from(field(kDenseShape));
  made.is_coalesced = nb::cast<bool>(field(kIsCoalesced));
  const nb::object versions = field(kModuleVersions);
  if (!versions.is_none()) {
    made.module_versions = parse_value(utf8(versions), {"", "module versions"});
  }
  made.is_bare = nb::cast<bool>(field(kIsBare));
  return made;
}

/// True if all keys are int, False if all are str. Otherwise a dict with all keys that are not str,
/// each under the string by which the tree stores it.
static nb::object key_types_of(const NodeInfo& info) {
  if (info.typed_keys.empty()) return nb::bool_(info.int_keys);
  nb::dict keys;
  for (const auto& [key, typed] : info.typed_keys) keys[text(key)] = to_python(typed);
  return keys;
}

static nb::object json_or_none(const std::optional<Value>& value) {
  return value ? nb::object(text(to_json(*value))) : nb::none();
}

nb::object to_python(const NodeInfo& info) {
  nb::list names;
  for (const std::optional<std::string>& dim_name : info.names) {
    names.append(dim_name ? nb::object(text(*dim_name)) : nb::none());
  }
  nb::dict metadata;
  for (const auto& [key, value] : info.metadata) metadata[text(key)] = text(value);
  static PyObject* type = nullptr;
  if (type == nullptr) {
    const nb::object module = nb::module_::import_("tenfold._interop.node_info");
    type = nb::object(module.attr("NodeInfo")).release().ptr();
  }
  return nb::handle(type)(text(to_string(info.kind)), key_types_of(info), tuple_of(info.batch_size),
                          nb::tuple(names), text(info.class_name), info.stack_dim,
                          info.stack_dim_name ? nb::object(text(*info.stack_dim_name)) : nb::none(),
                          text(info.device), json_or_none(info.schema), metadata, text(info.layout),
                          tuple_of(info.dense_shape), info.is_coalesced,
                          json_or_none(info.module_versions), info.is_bare);
}

namespace {

nb::list keys_of(const NodeHandle& self) {
  nb::list keys;
  for (const std::string& key : without_gil([&] { return self.node.keys(); })) {
    keys.append(text(key));
  }
  return keys;
}

/// Describes an entry without reading its bytes: ("tensor", dtype, shape, nested, unbatched),
/// ("value", python_value, is_stack, stack_dim), ("node", handle), or ("refused", problem) for a
/// node that cannot be read.
nb::tuple describe(const NodeHandle& of, std::string_view key, const TensorDict::Item& item) {
  if (const auto* leaf = std::get_if<Leaf>(&item)) {
    return nb::make_tuple("tensor", text(to_string(leaf->dtype())), tuple_of(leaf->shape()),
                          leaf->is_nested(), leaf->is_unbatched());
  }
  if (const auto* value = std::get_if<NonTensor>(&item)) {
    return nb::make_tuple("value", to_python(value->value, of.node, key), value->is_stack,
                          value->stack_dim);
  }
  const auto& node = std::get<TensorDict>(item);
  if (node.info().is_refused()) return nb::make_tuple("refused", text(node.info().problem));
  return nb::make_tuple("node", NodeHandle{node});
}

nb::tuple describe_key(const NodeHandle& self, nb::str key) {
  const std::string name = utf8(key);
  return describe(self, name, without_gil([&] { return item_at_key(self.node, name); }));
}

/// [(key, result of describe())] of all entries, in the order of the entries in the node.
nb::list describe_all(const NodeHandle& self) {
  std::vector<std::pair<std::string, TensorDict::Item>> entries;
  without_gil([&] {
    self.node.for_each([&](const std::string& key, const TensorDict::Item& item) {
      entries.emplace_back(key, item);
    });
  });
  nb::list listed;
  for (const auto& [key, item] : entries)
    listed.append(nb::make_tuple(text(key), describe(self, key, item)));
  return listed;
}

/// [(path, dtype, shape)] of every tensor below the node.
nb::list leaves(const NodeHandle& self) {
  std::vector<std::pair<KeyPath, Leaf>> found;
  without_gil([&] {
    self.node.for_each_leaf([&](const KeyPath& path, const TensorDict::Item& item) {
      if (const auto* leaf = std::get_if<Leaf>(&item)) found.emplace_back(path, *leaf);
    });
  });
  nb::list listed;
  for (const auto& [path, leaf] : found) {
    nb::list keys;
    for (const std::string& key : path) keys.append(text(key));
    listed.append(
        nb::make_tuple(nb::tuple(keys), text(to_string(leaf.dtype())), tuple_of(leaf.shape())));
  }
  return listed;
}

}  // namespace

void bind_node(nb::module_& module) {
  bind_bytes(module);
  nb::class_<ItemHandle>(module, "Item", "An entry of a node, to be moved to another tree.");
  nb::class_<NodeHandle>(module, "Node", "A node of the engine's tree.")
      .def("keys", &keys_of, nb::sig("def keys(self) -> list[str]"))
      .def("__len__", [](const NodeHandle& self) { return self.node.size(); })
      .def("__contains__",
           [](const NodeHandle& self, nb::str key) { return has_key(self.node, utf8(key)); })
      .def(
          "info", [](const NodeHandle& self) { return to_python(self.node.info()); },
          nb::sig("def info(self) -> tenfold._interop.node_info.NodeInfo"),
          "The properties of a node without its entries.")
      .def("where", [](const NodeHandle& self) { return text(self.node.where()); })
      .def("describe", &describe_key, "key"_a,
           nb::sig("def describe(self, key: str) -> tuple[typing.Any, ...]"))
      .def("describe_all", &describe_all,
           nb::sig("def describe_all(self) -> list[tuple[str, tuple[typing.Any, ...]]]"))
      .def("leaves", &leaves,
           nb::sig("def leaves(self) -> list[tuple[tuple[str, ...], str, tuple[int, ...]]]"))
      .def(
          "item",
          [](const NodeHandle& self, nb::str key) {
            return ItemHandle{
                without_gil([&, name = utf8(key)] { return item_at_key(self.node, name); })};
          },
          "key"_a)
      .def("get", &get_entry, "key"_a, "mode"_a, "tied"_a,
           nb::sig("def get(self, key: str, mode: str, tied: Tied) -> "
                   "tuple[typing.Any, str | int | None]"),
           "The entry as an object, and its mark: None, \"unbatched\" or a stack dimension.")
      .def("fill", &fill, "mode"_a, "tied"_a,
           nb::sig("def fill(self, mode: str, tied: Tied) -> "
                   "tuple[dict[str, typing.Any], dict[str, str | int]]"),
           "All entries as objects, and the marks of those that have one.")
      .def("to_containers", &to_containers, "mode"_a, "tied"_a, "place"_a.none(), "wrap"_a,
           nb::sig("def to_containers(self, mode: str, tied: Tied, "
                   "place: collections.abc.Callable[[typing.Any], typing.Any] | None, "
                   "wrap: collections.abc.Callable[[Node, tuple[str, ...]], typing.Any]) -> "
                   "typing.Any"),
           "The containers from which the tree was saved. `wrap(node, keys)` returns the object "
           "for a TensorDict, tensorclass or lazy stack.")
      .def("flush", [](const NodeHandle& self) {
        monitored(nb::none(), [&](Monitor* monitor) { self.node.flush(monitor); });
      });
}

}  // namespace tenfold::python

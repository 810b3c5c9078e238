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

/// The inverse of key_types_of(), for a dict of keys.
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
        .found("others");
  }
  return keys;
}

NodeInfo node_info_from(nb::handle info) {
  const nb::tuple fields = nb::cast<nb::tuple>(info);
  constexpr std::size_t kNumFields = 11;
  if (fields.size() != kNumFields) {
    throw base::invalid_argument().part("node info").expected("11 fields").found(fields.size());
  }
  NodeInfo made;
  const auto kind_name = nb::cast<std::string>(fields[0]);
  const std::optional<NodeKind> kind = node_kind_from_name(kind_name);
  if (!kind) {
    throw base::invalid_argument()
        .problem("no such kind of node")
        .expected("a name such as \"dict\"")
        .found("\"", kind_name, "\"");
  }
  made.kind = *kind;
  const nb::object keys = fields[1];
  if (PyBool_Check(keys.ptr())) {
    made.int_keys = nb::cast<bool>(keys);
  } else {
    made.typed_keys = typed_keys_from(keys);
  }
  made.batch_size = shape_from(fields[2]);
  for (const nb::handle dim_name : nb::borrow(fields[3])) {
    if (dim_name.is_none()) {
      made.names.emplace_back();
    } else {
      made.names.emplace_back(utf8(dim_name));
    }
  }
  made.class_name = utf8(fields[4]);
  made.stack_dim = nb::cast<std::int64_t>(fields[5]);
  const nb::object stack_dim_name = fields[6];
  if (!stack_dim_name.is_none()) made.stack_dim_name = utf8(stack_dim_name);
  made.device = utf8(fields[7]);
  const nb::object schema = fields[8];
  if (!schema.is_none()) made.schema = parse_value(utf8(schema), {"", "schema"});
  for (const auto& [key, value] : nb::cast<nb::dict>(fields[9])) {
    made.metadata.emplace(utf8(key), utf8(value));
  }
  const nb::object more = fields[10];
  if (!more.is_none()) {
    const nb::tuple parts = nb::cast<nb::tuple>(more);
    made.layout = utf8(parts[0]);
    made.dense_shape = shape_from(parts[1]);
    made.is_coalesced = nb::cast<bool>(parts[2]);
    const nb::object versions = parts[3];
    if (!versions.is_none())
      made.module_versions = parse_value(utf8(versions), {"", "module versions"});
    made.is_bare = parts.size() > 4 && nb::cast<bool>(parts[4]);  // older pickles have four
  }
  return made;
}

/// Rare properties of a node: layout, shape and is_coalesced of a sparse tensor, versions of a
/// module, and whether it is a bare root.
static nb::object more_of(const NodeInfo& info) {
  if (info.kind != NodeKind::sparse && !info.module_versions && !info.is_bare) return nb::none();
  return nb::make_tuple(
      text(info.layout), tuple_of(info.dense_shape), info.is_coalesced,
      info.module_versions ? nb::object(text(to_json(*info.module_versions))) : nb::none(),
      info.is_bare);
}

/// True if all keys are int; False if all are strings; otherwise the non-string keys, by their
/// strings.
static nb::object key_types_of(const NodeInfo& info) {
  if (info.typed_keys.empty()) return nb::bool_(info.int_keys);
  nb::dict keys;
  for (const auto& [key, typed] : info.typed_keys) keys[text(key)] = to_python(typed);
  return keys;
}

nb::tuple to_python(const NodeInfo& info) {
  nb::list names;
  for (const std::optional<std::string>& dim_name : info.names) {
    names.append(dim_name ? nb::object(text(*dim_name)) : nb::none());
  }
  nb::dict metadata;
  for (const auto& [key, value] : info.metadata) metadata[text(key)] = text(value);
  return nb::make_tuple(
      text(to_string(info.kind)), key_types_of(info), tuple_of(info.batch_size), names,
      text(info.class_name), info.stack_dim,
      info.stack_dim_name ? nb::object(text(*info.stack_dim_name)) : nb::none(), text(info.device),
      info.schema ? nb::object(text(to_json(*info.schema))) : nb::none(), metadata, more_of(info));
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

/// [(key, description)] of all entries, in order.
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
          nb::sig("def info(self) -> tuple[str, bool | dict[str, typing.Any], tuple[int, ...], "
                  "list[str | None], str, int, str | None, str, str | None, dict[str, str], "
                  "tuple[typing.Any, ...] | None]"),
          "The properties of a node without its entries: the fields of NodeInfo in "
          "tensordict/_node.py.")
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

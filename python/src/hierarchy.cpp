#include "mapper/hierarchy.hpp"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "arguments.hpp"
#include "array_in.hpp"
#include "base/fail.hpp"
#include "base/text.hpp"
#include "call.hpp"
#include "core/tree/node.hpp"
#include "mapper/hierarchy_builder.hpp"
#include "mapper/hierarchy_json.hpp"
#include "python_objects.hpp"
#include "state_mapper.hpp"
#include "tree_in.hpp"

namespace tenfold::python {

using namespace nb::literals;

namespace {

/// A hierarchy, and the tree that it is opened from.
struct HierarchyHandle {
  HierarchyHandle(const MapperHead& head, TensorDict opened)
      : tensors(std::move(opened)), hierarchy(head, tensors) {}

  TensorDict tensors;
  Hierarchy hierarchy;
};

bool is_int(nb::handle object) {
  return PyLong_Check(object.ptr()) != 0 && PyBool_Check(object.ptr()) == 0;
}

[[noreturn]] void throw_type_error(const std::string& message) {
  throw nb::type_error(message.c_str());
}

std::string class_of(nb::handle object) { return utf8(nb::object(object.type().attr("__name__"))); }

/// A str, or the digits of an int.
std::string key_text(nb::handle key, const std::string& where) {
  if (PyUnicode_Check(key.ptr())) return utf8(key);
  if (is_int(key)) return utf8(nb::str(key));
  throw_type_error("hierarchy: " + where + ": key " + shown_object(key) +
                   ": expected a str or an int, found " + class_of(key));
}

/// A number, or nested lists and tuples of numbers; empty for other objects, for an int that does
/// not fit int64, and for lists that are nested too deeply.
std::optional<Value> numbers_from(PyObject* object, std::size_t depth) {
  if (PyFloat_CheckExact(object)) return Value(float_value(object));
  if (PyBool_Check(object)) return Value(object == Py_True);
  if (PyLong_CheckExact(object)) {
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (overflow != 0) return std::nullopt;
    return Value(static_cast<std::int64_t>(number));
  }
  const bool is_sequence = PyList_Check(object) || PyTuple_Check(object);
  if (!is_sequence || depth == kMaxDepth) return std::nullopt;
  Value::List list;
  for (std::size_t i = 0; i < sequence_size(object); ++i) {
    std::optional<Value> item = numbers_from(sequence_item(object, i), depth + 1);
    if (!item) return std::nullopt;
    list.items.push_back(*std::move(item));
  }
  return Value(std::move(list));
}

/// Adds nested dicts to a builder.
class DictLevels {
 public:
  /// `mapper_type`: the class of mappers. `simple`: called with the path and an object of another
  /// type; returns a dense tensor or array in main memory, or a str of JSON.
  DictLevels(HierarchyBuilder& builder, nb::handle mapper_type, nb::handle simple)
      : builder_(builder), mapper_type_(mapper_type), simple_(simple) {}

  void add(nb::handle level) {
    // A copy: conversion may run Python code that changes the dict.
    const nb::object items = nb::steal(PyMapping_Items(level.ptr()));
    if (!items.is_valid()) throw nb::python_error();
    for (const nb::handle item : items) {
      const nb::object key = item[0];
      const std::string name = key_text(key, builder_.level_text());
      if (!PyUnicode_Check(key.ptr()) && nb::borrow<nb::dict>(level).contains(text(name))) {
        throw builder_.fail(ErrorCode::invalid_argument)
            .part(builder_.level_text())
            .problem("duplicate key ", base::quote(name), ", as a str and as an int")
            .expected("only one of them");
      }
      add_entry(name, item[1]);
    }
  }

  const nb::list& mappers() const noexcept { return mappers_; }

 private:
  void add_entry(const std::string& key, nb::handle value) {
    if (PyDict_Check(value.ptr())) {
      builder_.begin_level(key);
      add(value);
      return builder_.end_level();
    }
    if (const std::optional<Value> numbers = numbers_from(value.ptr(), 0)) {
      return builder_.add(key, *numbers);
    }
    if (std::optional<Tensor> tensor = tensor_of_torch(value)) {
      return builder_.add(key, *std::move(tensor));
    }
    if (nb::isinstance(value, mapper_type_)) {
      mappers_.append(value);
      return builder_.add_mapper(key);
    }
    const nb::object made = simple_(text(builder_.path_of(key)), value);
    if (PyUnicode_Check(made.ptr())) return builder_.add_json(key, utf8(made));
    builder_.add(key, dense_tensor(made, "hierarchy"));
  }

  HierarchyBuilder& builder_;
  nb::handle mapper_type_;
  nb::handle simple_;
  nb::list mappers_;
};

/// Returns (the hierarchy of nested dicts, a list of the mappers among the values).
nb::tuple hierarchy_of_dict(AnyObject levels, AnyObject default_key, nb::handle mapper_type,
                            nb::handle simple) {
  if (!PyDict_Check(levels.ptr())) {
    throw_type_error("hierarchy: expected a dict, found " + class_of(levels));
  }
  MapperHead head;
  head.where = base::Where("", "hierarchy");
  HierarchyBuilder builder(key_text(default_key, "default_key"), head.where,
                           ErrorCode::invalid_argument);
  DictLevels reader(builder, mapper_type, simple);
  reader.add(levels);
  const std::size_t num_mappers = reader.mappers().size();
  HierarchyHandle made = without_gil([&] {
    auto [config, tensors] = builder.build();
    head.config = std::move(config);
    // The caller keeps the mappers.
    TensorDict trees;
    for (std::size_t i = 0; i < num_mappers; ++i) trees.set(std::to_string(i), TensorDict());
    if (num_mappers > 0) tensors.set("mappers", std::move(trees));
    return HierarchyHandle(head, std::move(tensors));
  });
  return nb::make_tuple(nb::cast(std::move(made)), reader.mappers());
}

HierarchyHandle open_hierarchy(const NodeHandle& tree) {
  return without_gil([&] {
    const MapperHead head = restored_head(tree);
    return HierarchyHandle(head, node_of(head, tree.node, "tensors"));
  });
}

/// The hierarchy of a JSON file. None if the file does not begin like a JSON object, or is an index
/// of safetensors shards.
nb::object hierarchy_of_json(PathArgument path) {
  const Path source = path_from(path);
  std::optional<HierarchyHandle> made = without_gil([&]() -> std::optional<HierarchyHandle> {
    const std::optional<std::string> json = hierarchy_json_text(source);
    if (!json) return std::nullopt;
    auto [head, tensors] = parse_hierarchy_json(*json, source.string());
    return HierarchyHandle(head, std::move(tensors));
  });
  return made ? nb::cast(*std::move(made)) : nb::none();
}

/// The leading components of a state that can be keys. Raises TypeError if `state` is neither a
/// str, an int nor a tuple. Throws Error(invalid_argument) for an empty tuple, and for a tuple with
/// a component that is empty or contains "/".
StatePath path_of(nb::handle state) {
  PyObject* const raw = state.ptr();
  if (PyUnicode_Check(raw)) return {utf8(state), false};
  if (is_int(state)) return {utf8(nb::str(state)), false};
  if (!PyTuple_Check(raw)) refuse_state(state, "a str, an int or a tuple", "paths");
  StatePath path;
  bool is_path = tuple_size(raw) > 0;
  for (std::size_t i = 0; i < tuple_size(raw); ++i) {
    const nb::handle part = tuple_item(raw, i);
    const bool is_text = PyUnicode_Check(part.ptr()) != 0;
    path.goes_on = path.goes_on || (!is_text && !is_int(part));
    if (!is_text && path.goes_on) continue;
    const std::size_t begin = path.text.size();
    if (i > 0) path.text += '/';
    const std::size_t component = path.text.size();
    if (const auto ascii = is_text ? ascii_text(part.ptr()) : std::nullopt) {
      path.text += *ascii;
    } else {
      path.text += is_text ? utf8(part) : utf8(nb::str(part));
    }
    is_path = is_path && path.text.size() > component &&
              path.text.find('/', component) == std::string::npos;
    if (path.goes_on) path.text.resize(begin);
  }
  if (is_path) return path;
  throw base::invalid_argument()
      .part("state ", shown_object(state))
      .expected("a path of components that are not empty, without \"/\"")
      .found("no component, or one that is empty or contains \"/\"");
}

std::vector<StatePlace> places_of(const HierarchyHandle& self, nb::list states) {
  bool are_texts = true;
  for (std::size_t i = 0; i < states.size() && are_texts; ++i) {
    are_texts = PyUnicode_CheckExact(list_item(states.ptr(), i)) != 0;
  }
  if (are_texts) {
    const Utf8Texts texts(states);
    return without_gil([&] { return self.hierarchy.find(texts.views()); });
  }
  std::vector<StatePath> paths;
  paths.reserve(states.size());
  for (const nb::handle state : states) paths.push_back(path_of(state));
  return without_gil([&] { return self.hierarchy.find(paths); });
}

/// Returns (None, list of tables, list of rows) of the values. If all of them are rows of one table
/// of numbers or tensors, returns (table, None, rows as an int64 array).
nb::tuple find_states(const HierarchyHandle& self, nb::list states) {
  const std::vector<StatePlace> places = places_of(self, states);
  const auto is_first = [&](const StatePlace& place) { return place.table == places[0].table; };
  if (!places.empty() && places[0].table >= 0 && std::ranges::all_of(places, is_first)) {
    std::vector<std::int64_t> rows;
    rows.reserve(places.size());
    for (const StatePlace& place : places) rows.push_back(place.row);
    return nb::make_tuple(places[0].table, nb::none(), int_array(rows));
  }
  nb::list tables;
  nb::list rows;
  for (const StatePlace& place : places) {
    tables.append(place.table);
    rows.append(place.row);
  }
  return nb::make_tuple(nb::none(), tables, rows);
}

/// Table and row of one value.
nb::tuple find_state(const HierarchyHandle& self, AnyObject state) {
  const std::array<StatePath, 1> path = {path_of(state)};
  const StatePlace place = self.hierarchy.find(path)[0];
  return nb::make_tuple(place.table, place.row);
}

nb::object nearest_level(const HierarchyHandle& self, AnyObject state) {
  const StatePath path = path_of(state);
  return text(without_gil([&] { return self.hierarchy.nearest_level(path.text); }));
}

/// A copy of one row.
nb::object tensor_copy(const Tensor& row) {
  Buffer bytes = Buffer::allocate(static_cast<std::size_t>(row.nbytes()));
  if (row.nbytes() > 0) std::memcpy(bytes.mutable_data(), row.raw_data(), row.nbytes());
  return array_of(Tensor(row.dtype(), row.shape(), std::move(bytes)), "hierarchy");
}

/// The nested dicts; `mappers` are the values that are mappers.
nb::dict nested_dicts(const HierarchyHandle& self, nb::list mappers) {
  nb::dict root;
  std::unordered_map<std::string, nb::dict> levels = {{"", root}};
  self.hierarchy.for_each([&](const StatePaths::Node& node) {
    nb::dict& above = levels.at(std::string(node.parent()));
    const nb::str key = text(node.key());
    const StatePlace& place = node.place;
    if (node.is_level) {
      const nb::dict level;
      levels.emplace(node.path, level);
      above[key] = level;
    } else if (place.table == kMapperTable) {
      above[key] = mappers[static_cast<std::size_t>(place.row)];
    } else if (place.table >= 0 &&
               self.hierarchy.tables()[static_cast<std::size_t>(place.table)].origin ==
                   ValueOrigin::tensor) {
      above[key] = tensor_copy(
          self.hierarchy.tables()[static_cast<std::size_t>(place.table)].values.select(place.row));
    } else {
      above[key] = python::to_python(self.hierarchy.value(place));
    }
  });
  return root;
}

nb::list tables_of(const HierarchyHandle& self) {
  nb::list tables;
  for (const HierarchyTable& table : self.hierarchy.tables()) {
    tables.append(array_of(table.values, "tables"));
  }
  return tables;
}

}  // namespace

void bind_hierarchy(nb::module_& module) {
  nb::class_<HierarchyHandle>(module, "Hierarchy")
      .def_static("of_dict", hierarchy_of_dict, "levels"_a.none(), "default_key"_a.none(),
                  "mapper_type"_a, "simple"_a)
      .def_static("open", open_hierarchy, "tree"_a)
      .def_static("of_json", hierarchy_of_json, "path"_a,
                  nb::sig("def of_json(path: str) -> Hierarchy | None"))
      .def_prop_ro("default_key",
                   [](const HierarchyHandle& self) { return text(self.hierarchy.default_key()); })
      .def_prop_ro("mapper_paths",
                   [](const HierarchyHandle& self) {
                     nb::list paths;
                     for (const auto& path : self.hierarchy.mapper_paths())
                       paths.append(text(path));
                     return paths;
                   })
      .def_prop_ro("origins",
                   [](const HierarchyHandle& self) {
                     nb::list origins;
                     for (const HierarchyTable& table : self.hierarchy.tables()) {
                       origins.append(text(to_string(table.origin)));
                     }
                     return origins;
                   })
      .def_prop_ro("num_texts",
                   [](const HierarchyHandle& self) { return self.hierarchy.num_texts(); })
      .def("__len__", [](const HierarchyHandle& self) { return self.hierarchy.size(); })
      .def("tables", tables_of)
      .def("parts", [](const HierarchyHandle& self) { return item_handles_of(self.tensors); })
      .def("find", find_states, "states"_a)
      .def("find_one", find_state, "state"_a.none())
      .def("nearest_level", nearest_level, "state"_a.none())
      .def("value",
           [](const HierarchyHandle& self, std::int64_t table, std::int64_t row) {
             return python::to_python(self.hierarchy.value({table, row}));
           })
      .def("nested", nested_dicts, "mappers"_a)
      .def(
          "save_json",
          [](const HierarchyHandle& self, PathArgument path, bool durable, bool overwrite) {
            const Path target = path_from(path);
            without_gil([&] { save_hierarchy_json(self.hierarchy, target, durable, overwrite); });
          },
          "path"_a, "durable"_a, "overwrite"_a);
}

}  // namespace tenfold::python

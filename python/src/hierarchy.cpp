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

/// Converts a key to a string: a str as it is, an int in decimal.
std::string key_text(nb::handle key, const std::string& where) {
  if (PyUnicode_Check(key.ptr())) return utf8(key);
  if (is_int(key)) return utf8(nb::str(key));
  throw_type_error("hierarchy: " + where + ": key " + shown_object(key) +
                   ": expected a str or an int, found " + class_of(key));
}

/// Converts a number, a bool, or nested lists and tuples of these. Empty for other objects, for an
/// int that does not fit int64, and for lists that are nested too deeply.
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
  /// `mapper_type`: the class of mappers. `simple`: converts a value that is not a dict, a number,
  /// a list of numbers, a torch tensor or a mapper. It is called with the value's path and the
  /// value, and returns a dense tensor or array in main memory, or a str of JSON.
  DictLevels(HierarchyBuilder& builder, nb::handle mapper_type, nb::handle simple)
      : builder_(builder), mapper_type_(mapper_type), simple_(simple) {}

  void add(nb::handle level) {
    // Iterate over a copy, because conversion may run Python code that changes the dict.
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

/// Builds a hierarchy from nested dicts. Returns (hierarchy, list of the mappers among the values).
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
    // An empty tree represents each mapper, because the caller keeps the mappers.
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

/// Reads the hierarchy of a JSON file. Returns None if the path is not a file, if the file does not
/// start like a JSON object, or if it is an index of safetensors shards.
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

/// Raises TypeError if `state` is not a str, an int or a tuple. Throws Error(invalid_argument) for
/// an empty tuple, and for a tuple with a component that is empty or contains "/".
StatePath path_of(nb::handle state) {
  PyObject* const raw = state.ptr();
  if (PyUnicode_Check(raw)) return StatePath(utf8(state));
  if (is_int(state)) return StatePath(utf8(nb::str(state)));
  if (!PyTuple_Check(raw)) refuse_state(state, "a str, an int or a tuple", "paths");
  StatePath path;
  bool is_path = tuple_size(raw) > 0;
  for (std::size_t i = 0; i < tuple_size(raw); ++i) {
    const nb::handle part = tuple_item(raw, i);
    const bool is_text = PyUnicode_Check(part.ptr()) != 0;
    if (!is_text && !is_int(part)) {
      path.add_other();
    } else if (const auto ascii = is_text ? ascii_text(part.ptr()) : std::nullopt) {
      is_path = path.add(*ascii) && is_path;
    } else {
      is_path = path.add(is_text ? utf8(part) : utf8(nb::str(part))) && is_path;
    }
  }
  if (is_path) return path;
  throw not_a_path("state " + shown_object(state));
}

/// The components of a state after the first `num_above` ones: a tuple, or the component itself if
/// there is only one.
nb::object rest_of(nb::handle state, std::size_t num_above) {
  const nb::tuple parts = PyUnicode_Check(state.ptr()) ? nb::tuple(state.attr("split")("/"))
                          : PyTuple_Check(state.ptr()) ? nb::borrow<nb::tuple>(state)
                                                       : nb::make_tuple(state);
  const nb::object rest = nb::steal(PyTuple_GetSlice(
      parts.ptr(), static_cast<Py_ssize_t>(num_above), static_cast<Py_ssize_t>(parts.size())));
  if (!rest.is_valid()) throw nb::python_error();
  return tuple_size(rest.ptr()) == 1 ? nb::borrow(tuple_item(rest.ptr(), 0)) : rest;
}

std::vector<StatePlace> places_of(const HierarchyHandle& self, nb::list states,
                                  const StateNames& names) {
  bool are_texts = true;
  for (std::size_t i = 0; i < states.size() && are_texts; ++i) {
    are_texts = PyUnicode_CheckExact(list_item(states.ptr(), i)) != 0;
  }
  if (are_texts) {
    const Utf8Texts texts(states);
    return without_gil([&] { return self.hierarchy.find(texts.views(), names); });
  }
  std::vector<StatePath> paths;
  paths.reserve(states.size());
  for (const nb::handle state : states) paths.push_back(path_of(state));
  return without_gil([&] { return self.hierarchy.find(paths, names); });
}

/// Returns the result for `state`, whose value is at `place`: the row index if the value is in a
/// table, the value itself if the hierarchy stores it, or the rest of the state if a mapper has to
/// look it up. `position`: index of the state in the call.
nb::object found_at(const HierarchyHandle& self, const StatePlace& place, nb::handle state,
                    std::size_t position, const StateNames& names) {
  if (place.table >= 0) return nb::int_(place.row);
  if (place.table != kMapperTable) return python::to_python(self.hierarchy.value(place));
  return rest_of(state, self.hierarchy.num_above(path_of(state), place.row, position, names));
}

/// Finds a batch of states. Returns a list of (positions in the batch, table, mapper, results), one
/// tuple for each group of states with values in the same table or mapper. The results are an array
/// of row indices for a table, otherwise a list of results of found_at(). If there is only one
/// group, its positions are omitted.
nb::list groups_of_states(const HierarchyHandle& self, nb::list states, PathArgument path) {
  const StateNames names = {place_in_messages(path, "hierarchy"), shown_states(states)};
  const std::vector<PlaceGroup> groups = groups_of(places_of(self, states, names));
  nb::list made;
  for (const PlaceGroup& group : groups) {
    nb::list positions;
    nb::list found;
    for (std::size_t i = 0; i < group.rows.size(); ++i) {
      const std::size_t position = group.positions[i];
      if (groups.size() > 1) positions.append(position);
      if (group.table >= 0) continue;
      const nb::object state = state_at(states, position);
      found.append(found_at(self, {group.table, group.rows[i]}, state, position, names));
    }
    made.append(nb::make_tuple(positions, group.table, group.mapper,
                               group.table < 0 ? found : int_array(group.rows)));
  }
  return made;
}

/// Finds one state. Returns (table, row, list with the result of found_at()). A negative table
/// means that the value is not in a table. If a mapper has to look up the value, row is the
/// mapper's index.
nb::tuple find_state(const HierarchyHandle& self, AnyObject state, PathArgument path) {
  const StateNames names = {place_in_messages(path, "hierarchy"),
                            [&](std::size_t) { return shown_object(state); }};
  const std::array<StatePath, 1> paths = {path_of(state)};
  const StatePlace place = self.hierarchy.find(paths, names)[0];
  nb::list found;
  found.append(found_at(self, place, state, 0, names));
  return nb::make_tuple(place.table, place.row, found);
}

/// A copy of one row.
nb::object tensor_copy(const Tensor& row) {
  Buffer bytes = Buffer::allocate(static_cast<std::size_t>(row.nbytes()));
  if (row.nbytes() > 0) std::memcpy(bytes.mutable_data(), row.raw_data(), row.nbytes());
  return array_of(Tensor(row.dtype(), row.shape(), std::move(bytes)), "hierarchy");
}

/// Returns the hierarchy as nested dicts. `mappers`: the mappers among the values, by index.
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
      .def("__len__", [](const HierarchyHandle& self) { return self.hierarchy.size(); })
      .def("tables", tables_of)
      .def("parts", [](const HierarchyHandle& self) { return item_handles_of(self.tensors); })
      .def("groups", groups_of_states, "states"_a, "path"_a.none())
      .def("find_one", find_state, "state"_a.none(), "path"_a.none())
      .def("no_rows",
           [](const HierarchyHandle& self) -> AnyObject {
             return array_of(self.hierarchy.no_rows(), "tables");
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

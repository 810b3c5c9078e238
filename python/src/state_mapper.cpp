#include "state_mapper.hpp"

#include <tenfold/mapped_dict.hpp>
#include <tenfold/sparse_matrix.hpp>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "arguments.hpp"
#include "array_in.hpp"
#include "array_out.hpp"
#include "base/fail.hpp"
#include "call.hpp"
#include "core/tree/node.hpp"
#include "formats/shared/commit.hpp"
#include "gil.hpp"
#include "mapper/saved_sparse.hpp"
#include "mapper/state_index.hpp"
#include "mapper/state_keys.hpp"
#include "python_objects.hpp"
#include "tree_in.hpp"

namespace tenfold::python {

using namespace nb::literals;

std::string shown_object(nb::handle object) {
  return utf8(nb::module_::import_("tenfold.mappers._mapper").attr("shown")(object));
}

nb::object state_at(nb::handle states, std::size_t i) {
  const nb::handle state = PyList_GetItem(states.ptr(), static_cast<Py_ssize_t>(i));
  if (!state.is_valid()) throw nb::python_error();
  return nb::borrow(state);
}

ShownKey shown_states(const nb::list& states) {
  return [list = states.ptr()](std::size_t i) {
    const GilAcquire acquired;
    return shown_object(state_at(list, i));
  };
}

std::function<base::Where()> place_in_messages(nb::handle path, const char* what) {
  return [path, what] {
    const GilAcquire acquired;
    return path.is_none() ? base::Where("", what) : base::Where(path_from(path));
  };
}

void refuse_state(nb::handle state, const std::string& expected, const std::string& batch) {
  const std::string name = utf8(nb::object(state.type().attr("__name__")));
  const std::string message = "state " + shown_object(state) + ": expected " + expected +
                              ", found " + name + "; a batch is a list of " + batch;
  throw nb::type_error(message.c_str());
}

MapperHead restored_head(const NodeHandle& tree) {
  MapperHead head;
  head.where = base::Where("", "state mapper");
  head.config = tree.node.value("config");
  return head;
}

nb::dict item_handles_of(const TensorDict& node) {
  nb::dict items;
  node.for_each([&](const std::string& key, const TensorDict::Item& item) {
    items[text(key)] = nb::cast(ItemHandle{item});
  });
  return items;
}

Tensor dense_tensor(nb::handle array, const std::string& what) {
  if (std::optional<Tensor> tensor = tensor_of_torch(array)) return *std::move(tensor);
  const TensorDict::Item item = bare_value(TreeBuilder(what).root(array, true));
  if (const auto* leaf = std::get_if<Leaf>(&item)) return leaf->tensor();
  throw base::invalid_argument()
      .part(what)
      .expected("a dense tensor")
      .found(utf8(nb::object(array.type().attr("__name__"))));
}

namespace {

/// Appends a Python int that fits int64. Returns false for any other object.
bool append_int(PyObject* object, std::string& into) {
  if (!PyLong_CheckExact(object)) return false;
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
  if (overflow != 0) return false;
  std::array<char, 24> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  into.append(digits.data(), end);
  return true;
}

/// Appends an ASCII str that needs no escapes in JSON. Returns false for any other object.
bool append_plain_text(PyObject* object, std::string& into) {
  if (!PyUnicode_CheckExact(object)) return false;
  const auto text = ascii_text(object);
  if (!text) return false;
  const auto is_plain = [](char c) { return c >= ' ' && c < 0x7F && c != '"' && c != '\\'; };
  if (!std::ranges::all_of(*text, is_plain)) return false;
  into += '"';
  into += *text;
  into += '"';
  return true;
}

/// Appends a tuple of ints and strings that append_int() and append_plain_text() accept, in the
/// form of state_text(). Returns false for any other object; some parts may then have been
/// appended.
bool append_plain_tuple(PyObject* object, std::string& into) {
  if (!PyTuple_CheckExact(object)) return false;
  into += '[';
  for (std::size_t i = 0; i < tuple_size(object); ++i) {
    PyObject* part = tuple_item(object, i);
    if (i > 0) into += ", ";
    if (!append_int(part, into) && !append_plain_text(part, into)) return false;
  }
  into += ']';
  return true;
}

/// Converts a state. Raises TypeError for an object that cannot be a state, such as a list.
Value state_from(nb::handle state, std::size_t depth = 0) {
  PyObject* const raw = state.ptr();
  if (raw == Py_None) return Value();
  if (PyUnicode_Check(raw)) return Value(utf8(state));
  if (PyTuple_Check(raw)) {
    if (depth == kMaxDepth) {
      throw base::invalid_argument()
          .part("state")
          .expected("at most 512 levels of tuples")
          .found("more");
    }
    Value::Tuple tuple;
    for (std::size_t i = 0; i < tuple_size(raw); ++i) {
      tuple.items.push_back(state_from(tuple_item(raw, i), depth + 1));
    }
    return tuple;
  }
  if (!PyFloat_Check(raw)) {
    const nb::object whole = nb::steal(PyNumber_Index(raw));
    if (whole.is_valid()) {
      try {
        return *typed_key(whole);
      } catch (const Error&) {  // too many digits
        throw base::unsupported().part("state").problem(long_integer(std::nullopt));
      }
    }
    if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) throw nb::python_error();
    PyErr_Clear();  // not an integer, such as a tensor of floats
  }
  if (PyFloat_Check(raw) || nb::hasattr(state, "is_integer")) {
    const nb::object number = nb::steal(PyNumber_Float(raw));
    if (!number.is_valid()) throw nb::python_error();
    return Value(float_value(number.ptr()));
  }
  refuse_state(state, "None, a bool, an int, a float, a str or a tuple of them", "states");
}

std::vector<Value> states_from(const nb::list& states) {
  std::vector<Value> made;
  // Conversion may run Python code that changes the list.
  for (std::size_t i = 0; i < states.size(); ++i) {
    made.push_back(state_from(state_at(states, i)));
  }
  return made;
}

/// A fast path for states that can be looked up without conversion to a Value. Empty if a state
/// needs conversion.
std::optional<std::vector<std::int64_t>> positions_of_plain(const SavedSparse& mapper,
                                                            const nb::list& states) {
  const auto look_up = [&](const auto& keys) {
    return without_gil([&] { return mapper.keys.rows(keys); });
  };
  const auto are_all = [&](const auto& fits) {
    for (std::size_t i = 0; i < states.size(); ++i) {
      if (!fits(list_item(states.ptr(), i))) return false;
    }
    return true;
  };
  if (mapper.key_kind == StateKeyKind::int64) {
    std::vector<std::int64_t> keys;
    keys.reserve(states.size());
    const bool are_ints = are_all([&](PyObject* one) {
      int overflow = 0;
      if (!PyLong_CheckExact(one)) return false;
      keys.push_back(PyLong_AsLongLongAndOverflow(one, &overflow));
      return overflow == 0;
    });
    return are_ints ? std::optional(look_up(keys)) : std::nullopt;
  }
  if (mapper.key_kind == StateKeyKind::json) {
    std::string all;
    std::vector<std::size_t> ends;
    const bool are_tuples = are_all([&](PyObject* one) {
      if (!append_plain_tuple(one, all)) return false;
      ends.push_back(all.size());
      return true;
    });
    if (!are_tuples) return std::nullopt;
    std::vector<std::string_view> texts;
    std::size_t begin = 0;
    for (const std::size_t end : ends) {
      texts.push_back(std::string_view(all).substr(begin, end - begin));
      begin = end;
    }
    return look_up(texts);
  }
  const bool is_bytes = mapper.key_kind == StateKeyKind::bytes;
  const bool are_texts = are_all([&](PyObject* one) {
    return (is_bytes ? PyBytes_CheckExact(one) : PyUnicode_CheckExact(one)) != 0;
  });
  return are_texts ? std::optional(look_up(Utf8Texts(states).views())) : std::nullopt;
}

/// The position of each state in the mapper's keys, or -1 for an unknown state.
std::vector<std::int64_t> positions_of(const SavedSparse& mapper, const nb::list& states) {
  if (auto plain = positions_of_plain(mapper, states)) return *std::move(plain);
  if (mapper.key_kind != StateKeyKind::bytes) {
    const std::vector<Value> values = states_from(states);
    return without_gil([&] { return rows_of_states(mapper.keys, mapper.key_kind, values); });
  }
  // rows_of_states() finds a key of bytes by a Value that holds the bytes as a string. A state that
  // is not bytes, even a str, equals no such key, so it becomes null.
  std::vector<Value> values;
  for (std::size_t i = 0; i < states.size(); ++i) {
    const nb::object one = state_at(states, i);
    const bool is_bytes = PyBytes_Check(one.ptr()) != 0;
    if (!is_bytes) state_from(one);  // checks it
    values.push_back(is_bytes ? Value(bytes_text(one.ptr())) : Value());
  }
  return without_gil([&] { return rows_of_states(mapper.keys, mapper.key_kind, values); });
}

/// The C++ object of a sparse state mapper in Python.
struct SparseMapper {
  std::shared_ptr<const SavedSparse> saved;
};

/// `numbers`: an array, or None for a mapper without a default.
std::optional<Tensor> fallback_from(const AnyObject& numbers, const SparseMatrix& matrix) {
  if (numbers.is_none()) return std::nullopt;
  return fallback_row(dense_tensor(numbers, "default"), matrix);
}

/// `rows`: the row of each state; None: 0, 1, 2, ...
SparseMapper sparse_of_states(nb::list states, const std::optional<std::vector<std::int64_t>>& rows,
                              const SparseMatrix& matrix, AnyObject fallback) {
  const std::optional<Tensor> row = fallback_from(fallback, matrix);
  const std::vector<Value> values = states_from(states);
  const ShownKey shown = shown_states(states);
  return without_gil([&] {
    std::optional<Tensor> numbers;
    if (rows) numbers = Tensor::from(std::span<const std::int64_t>(*rows));
    return SparseMapper{made_sparse(make_state_keys(values, shown), matrix, row, numbers)};
  });
}

/// The keys of the MappedDict at `path` are the states.
SparseMapper sparse_of_dict(PathArgument path, const SparseMatrix& matrix, AnyObject fallback) {
  const Path source = path_from(path);
  const std::optional<Tensor> row = fallback_from(fallback, matrix);
  return without_gil([&] {
    const MappedDict dict(source);
    const std::string kind = to_string(dict.key_type());
    return SparseMapper{made_sparse({kind, state_index_of(dict)}, matrix, row)};
  });
}

SparseMapper open_sparse(const NodeHandle& tree) {
  return without_gil([&] {
    MapperHead head = restored_head(tree);
    TensorDict tensors = node_of(head, tree.node, "tensors");
    return SparseMapper{saved_sparse(std::move(head), std::move(tensors))};
  });
}

nb::object sparse_rows(const SparseMapper& self, nb::list states, PathArgument path) {
  const std::vector<std::int64_t> positions = positions_of(*self.saved, states);
  const StateNames names = {place_in_messages(path, "state mapper"), shown_states(states)};
  return array_of(without_gil([&] { return self.saved->rows_at(positions, names); }), "rows");
}

bool has_state(const SparseMapper& self, AnyObject state) {
  nb::list one;
  one.append(state);
  return positions_of(*self.saved, one)[0] >= 0;
}

}  // namespace

void bind_state_mapper(nb::module_& module) {
  bind_hierarchy(module);
  nb::class_<SparseMapper>(module, "SparseMapper")
      .def_static("of_states", sparse_of_states, "states"_a, "rows"_a.none(), "matrix"_a,
                  "fallback"_a.none())
      .def_static("of_dict", sparse_of_dict, "path"_a, "matrix"_a, "fallback"_a.none())
      .def_static("open", open_sparse, "tree"_a)
      .def_prop_ro("kind",
                   [](const SparseMapper& self) { return text(self.saved->head.text("keys")); })
      .def_prop_ro("matrix", [](const SparseMapper& self) { return self.saved->matrix; })
      .def_prop_ro("fallback",
                   [](const SparseMapper& self) -> AnyObject {
                     const std::optional<Tensor>& row = self.saved->fallback;
                     return row ? array_of(*row, "default") : nb::none();
                   })
      .def("__len__", [](const SparseMapper& self) { return self.saved->keys.size(); })
      .def("__contains__", has_state, "state"_a.none())
      .def("rows", sparse_rows, "states"_a, "path"_a.none())
      .def("parts", [](const SparseMapper& self) { return item_handles_of(self.saved->tensors); });
  module.def(
      "check_mapper",
      [](const NodeHandle& tree, PathArgument where) {
        const std::string place = path_from(where).string();
        without_gil([&] { tensors_of(head_of(tree.node, place), tree.node); });
      },
      "tree"_a, "where"_a);
  module.def(
      "replace_file",
      [](PathArgument path, const std::string& text, bool durable) {
        const Path target = path_from(path);
        without_gil([&] { detail::formats::replace_file(target, text, durable); });
      },
      "path"_a, "text"_a, "durable"_a);
}

}  // namespace tenfold::python

#include "state_mapper.hpp"
#include "arguments.hpp"

#include <tenfold/mapped_dict.hpp>
#include <tenfold/sparse_matrix.hpp>

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "array_out.hpp"
#include "base/fail.hpp"
#include "call.hpp"
#include "formats/shared/commit.hpp"
#include "mapper/state_index.hpp"
#include "mapper/state_keys.hpp"
#include "python_objects.hpp"

namespace tenfold::python {

using namespace nb::literals;

namespace {

/// An entry for a node that is moved to another tree.
ItemHandle item_of(TensorDict node) { return ItemHandle{TensorDict::Item(std::move(node))}; }

/// Appends a Python int that fits int64; returns false for another object.
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

/// Appends a str that needs no escapes in JSON; returns false for another object.
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

/// Appends a tuple of such ints and strings in the form of state_text(); returns false for another
/// object.
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

/// The keys of a sparse mapper. Maps states to rows.
struct StateKeys {
  StateKeys(const NodeHandle& parent, const std::string& key, const std::string& kind_name)
      : kind(kind_of(kind_name)), dict(open_state_index(parent.node[key], key_type_of(kind), {})) {}

  static StateKeyKind kind_of(const std::string& kind_name) {
    const auto kind = state_key_kind_from_name(kind_name);
    if (kind) return *kind;
    throw base::corrupt()
        .part("keys")
        .expected("\"int\", \"str\", \"bytes\" or \"json\"")
        .found("\"", kind_name, "\"");
  }

  AnyObject rows_of_ints(const std::vector<std::int64_t>& keys) const {
    return int_array(without_gil([&] { return dict.rows(std::span<const std::int64_t>(keys)); }));
  }
  AnyObject rows_of_texts(AnyObject keys) const {
    const Utf8Texts texts(keys);
    const std::span<const std::string_view> views = texts.views();
    return int_array(without_gil([&] { return dict.rows(views); }));
  }

  /// Fast path for states that are usable as keys without conversion; returns None if some are not.
  AnyObject rows_of_plain(nb::list states) const {
    switch (kind) {
      case StateKeyKind::int64:
        return rows_of_plain_ints(states);
      case StateKeyKind::json:
        return rows_of_plain_tuples(states);
      case StateKeyKind::text:
        return rows_if_all(states, [](PyObject* one) { return PyUnicode_CheckExact(one) != 0; });
      case StateKeyKind::bytes:
        return rows_if_all(states, [](PyObject* one) { return PyBytes_CheckExact(one) != 0; });
    }
    return nb::none();
  }

  StateKeyKind kind;
  MappedDict dict;

 private:
  static PyObject* item(const nb::list& states, std::size_t i) {
    return list_item(states.ptr(), i);
  }

  template <class Fits>
  nb::object rows_if_all(const nb::list& states, const Fits& fits) const {
    for (std::size_t i = 0; i < states.size(); ++i) {
      if (!fits(item(states, i))) return nb::none();
    }
    return rows_of_texts(states);
  }

  nb::object rows_of_plain_ints(const nb::list& states) const {
    std::vector<std::int64_t> keys;
    keys.reserve(states.size());
    for (std::size_t i = 0; i < states.size(); ++i) {
      PyObject* one = item(states, i);
      if (!PyLong_CheckExact(one)) return nb::none();
      int overflow = 0;
      keys.push_back(PyLong_AsLongLongAndOverflow(one, &overflow));
      if (overflow != 0) return nb::none();
    }
    return rows_of_ints(keys);
  }

  nb::object rows_of_plain_tuples(const nb::list& states) const {
    std::string all;
    std::vector<std::size_t> ends;
    for (std::size_t i = 0; i < states.size(); ++i) {
      if (!append_plain_tuple(item(states, i), all)) return nb::none();
      ends.push_back(all.size());
    }
    std::vector<std::string_view> texts;
    std::size_t begin = 0;
    for (const std::size_t end : ends) {
      texts.push_back(std::string_view(all).substr(begin, end - begin));
      begin = end;
    }
    const std::span<const std::string_view> keys = texts;
    return int_array(without_gil([&] { return dict.rows(keys); }));
  }
};

std::string name_of(DictKeyType type) { return to_string(type); }

ItemHandle make_int_keys(const std::vector<std::int64_t>& keys) {
  return item_of(without_gil([&] {
    return make_state_index(std::span<const std::int64_t>(keys), DictKeyType::int64, {});
  }));
}

ItemHandle make_text_keys(AnyObject keys) {
  const Utf8Texts texts(keys);
  return item_of(without_gil([&] {
    const std::span<const std::string_view> views = texts.views();
    return make_state_index(views, DictKeyType::string, {});
  }));
}

}  // namespace

void bind_state_mapper(nb::module_& module) {
  bind_hierarchy(module);
  nb::class_<StateKeys>(module, "StateKeys")
      .def(nb::init<const NodeHandle&, const std::string&, const std::string&>(), "parent"_a,
           "key"_a, "kind"_a)
      .def_static("make_ints", make_int_keys, "keys"_a)
      .def_static("make_texts", make_text_keys, "keys"_a)
      .def_static("of_dict",
                  [](PathArgument path) {
                    const Path source = path_from(path);
                    return without_gil([&] {
                      const MappedDict dict(source);
                      return std::pair(item_of(state_index_of(dict)), name_of(dict.key_type()));
                    });
                  })
      .def("__len__", [](const StateKeys& self) { return self.dict.size(); })
      .def("rows_of_ints", &StateKeys::rows_of_ints, "keys"_a)
      .def("rows_of_texts", &StateKeys::rows_of_texts, "keys"_a)
      .def("rows_of_plain", &StateKeys::rows_of_plain, "states"_a);
  module.def(
      "replace_file",
      [](PathArgument path, const std::string& text, bool durable) {
        const Path target = path_from(path);
        without_gil([&] { detail::formats::replace_file(target, text, durable); });
      },
      "path"_a, "text"_a, "durable"_a);
  module.def("sparse_item",
             [](const SparseMatrix& matrix) { return item_of(TensorDict(matrix.tree())); });
  module.def("sparse_of", [](const NodeHandle& parent, const std::string& key) {
    return without_gil([&] { return SparseMatrix(parent.node[key]); });
  });
}

}  // namespace tenfold::python

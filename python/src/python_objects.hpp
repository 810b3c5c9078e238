#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// Access to Python objects. A build for one version of Python uses macros that read the memory of
// the objects. A build for the stable ABI of Python 3.12 and later calls functions of the limited
// API. The CMake option TENFOLD_LIMITED_API selects these functions without the stable ABI, for any
// Python from 3.11 on.
#if defined(Py_LIMITED_API) && !defined(TENFOLD_LIMITED_API)
#define TENFOLD_LIMITED_API
#endif

#ifndef TENFOLD_LIMITED_API
#include <datetime.h>
#endif

namespace nb = nanobind;

namespace tenfold::python {

#ifdef TENFOLD_LIMITED_API
inline constexpr bool kLimitedApi = true;
#else
inline constexpr bool kLimitedApi = false;
#endif

// --- strings and numbers: the caller has checked the type ---

/// The characters of an ASCII str; empty for any other str and, without the limited API, for a
/// subclass of str. With the limited API, requires the GIL and, for a str that is not ASCII, caches
/// the UTF-8 in the str object.
inline std::optional<std::string_view> ascii_text(PyObject* text) {
#ifdef TENFOLD_LIMITED_API
  Py_ssize_t size = 0;
  const char* characters = PyUnicode_AsUTF8AndSize(text, &size);
  if (characters == nullptr) {
    PyErr_Clear();  // lone surrogates
    return std::nullopt;
  }
  if (size != PyUnicode_GetLength(text)) return std::nullopt;
  return std::string_view(characters, static_cast<std::size_t>(size));
#else
  if (!PyUnicode_IS_COMPACT_ASCII(text)) return std::nullopt;
  return std::string_view(static_cast<const char*>(PyUnicode_DATA(text)),
                          static_cast<std::size_t>(PyUnicode_GET_LENGTH(text)));
#endif
}

inline std::string_view bytes_text(PyObject* bytes) {
#ifdef TENFOLD_LIMITED_API
  return {PyBytes_AsString(bytes), static_cast<std::size_t>(PyBytes_Size(bytes))};
#else
  return {PyBytes_AS_STRING(bytes), static_cast<std::size_t>(PyBytes_GET_SIZE(bytes))};
#endif
}

inline std::string_view bytearray_text(PyObject* bytes) {
#ifdef TENFOLD_LIMITED_API
  return {PyByteArray_AsString(bytes), static_cast<std::size_t>(PyByteArray_Size(bytes))};
#else
  return {PyByteArray_AS_STRING(bytes), static_cast<std::size_t>(PyByteArray_GET_SIZE(bytes))};
#endif
}

inline double float_value(PyObject* number) {
#ifdef TENFOLD_LIMITED_API
  return PyFloat_AsDouble(number);
#else
  return PyFloat_AS_DOUBLE(number);
#endif
}

// --- containers: the caller has checked the type; items are borrowed references ---

inline std::size_t tuple_size(PyObject* tuple) {
#ifdef TENFOLD_LIMITED_API
  return static_cast<std::size_t>(PyTuple_Size(tuple));
#else
  return static_cast<std::size_t>(PyTuple_GET_SIZE(tuple));
#endif
}

inline PyObject* tuple_item(PyObject* tuple, std::size_t i) {
#ifdef TENFOLD_LIMITED_API
  return PyTuple_GetItem(tuple, static_cast<Py_ssize_t>(i));
#else
  return PyTuple_GET_ITEM(tuple, static_cast<Py_ssize_t>(i));
#endif
}

/// Sets an item of a new tuple, and takes ownership of `item`.
inline void set_tuple_item(PyObject* tuple, std::size_t i, PyObject* item) {
#ifdef TENFOLD_LIMITED_API
  if (PyTuple_SetItem(tuple, static_cast<Py_ssize_t>(i), item) != 0) throw nb::python_error();
#else
  PyTuple_SET_ITEM(tuple, static_cast<Py_ssize_t>(i), item);
#endif
}

inline PyObject* list_item(PyObject* list, std::size_t i) {
#ifdef TENFOLD_LIMITED_API
  return PyList_GetItem(list, static_cast<Py_ssize_t>(i));
#else
  return PyList_GET_ITEM(list, static_cast<Py_ssize_t>(i));
#endif
}

/// Size of a list or tuple. sequence_item() and sequence_items() also accept only these types.
inline std::size_t sequence_size(PyObject* sequence) {
#ifdef TENFOLD_LIMITED_API
  return static_cast<std::size_t>(PyList_Check(sequence) ? PyList_Size(sequence)
                                                         : PyTuple_Size(sequence));
#else
  return static_cast<std::size_t>(PySequence_Fast_GET_SIZE(sequence));
#endif
}

inline PyObject* sequence_item(PyObject* sequence, std::size_t i) {
#ifdef TENFOLD_LIMITED_API
  return PyList_Check(sequence) ? list_item(sequence, i) : tuple_item(sequence, i);
#else
  return PySequence_Fast_GET_ITEM(sequence, static_cast<Py_ssize_t>(i));
#endif
}

/// All items. The span points into the sequence or, with the limited API, into `copies`. It is
/// valid until Python code runs.
inline std::span<PyObject* const> sequence_items(PyObject* sequence,
                                                 [[maybe_unused]] std::vector<PyObject*>& copies) {
#ifdef TENFOLD_LIMITED_API
  copies.resize(sequence_size(sequence));
  for (std::size_t i = 0; i < copies.size(); ++i) copies[i] = sequence_item(sequence, i);
  return copies;
#else
  return {PySequence_Fast_ITEMS(sequence), sequence_size(sequence)};
#endif
}

inline std::size_t dict_size(PyObject* dict) {
#ifdef TENFOLD_LIMITED_API
  return static_cast<std::size_t>(PyDict_Size(dict));
#else
  return static_cast<std::size_t>(PyDict_GET_SIZE(dict));
#endif
}

// --- calls and types ---

/// Calls `callable` with one argument. Returns null if it raised an exception.
inline PyObject* call_with(PyObject* callable, PyObject* argument) {
#ifdef TENFOLD_LIMITED_API
  return PyObject_CallFunctionObjArgs(callable, argument, nullptr);
#else
  return PyObject_CallOneArg(callable, argument);
#endif
}

/// The name of an object's class, including the module ("numpy.int64") for classes implemented in
/// C. With the limited API, the names of heap types that are implemented in C lack the module.
#ifdef TENFOLD_LIMITED_API
inline std::string type_name(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  const nb::object last = nb::steal(PyType_GetName(type));
  if (!last.is_valid()) throw nb::python_error();
  std::string name = nb::cast<std::string>(last);
  if ((PyType_GetFlags(type) & Py_TPFLAGS_HEAPTYPE) != 0) return name;
  const nb::handle named(reinterpret_cast<PyObject*>(type));
  std::string module = nb::cast<std::string>(nb::object(named.attr("__module__")));
  return module == "builtins" ? std::move(name) : std::move(module) + "." + name;
}
#else
inline std::string_view type_name(PyObject* object) { return Py_TYPE(object)->tp_name; }
#endif

/// True for a date, a datetime, a time or a timedelta.
inline bool is_datetime(PyObject* object) {
#ifdef TENFOLD_LIMITED_API
  static PyObject* types = nullptr;  // never freed; guarded by the GIL
  if (types == nullptr) {
    const nb::module_ module = nb::module_::import_("datetime");
    nb::object made =
        nb::make_tuple(module.attr("date"), module.attr("time"), module.attr("timedelta"));
    if (types == nullptr) types = made.release().ptr();
  }
  for (std::size_t i = 0; i < tuple_size(types); ++i) {
    auto* type = reinterpret_cast<PyTypeObject*>(tuple_item(types, i));
    if (PyObject_TypeCheck(object, type)) return true;
  }
  return false;
#else
  if (PyDateTimeAPI == nullptr) {
    PyDateTime_IMPORT;
    if (PyDateTimeAPI == nullptr) throw nb::python_error();
  }
  return PyDate_Check(object) || PyTime_Check(object) || PyDelta_Check(object);
#endif
}

}  // namespace tenfold::python

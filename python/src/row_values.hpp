#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/value.hpp>

#include "common.hpp"
#include "ingest/row_fault.hpp"
#include "ingest/row_type.hpp"
#include "python_objects.hpp"

namespace tenfold::python {

/// Thrown by add_columns() if a column contains records. The caller then adds the rows one by one.
struct RowsNeeded {};

inline bool is_sequence(PyObject* object) { return PyList_Check(object) || PyTuple_Check(object); }

/// The UTF-8 of a str, without a copy if the str is ASCII. Unlike PyUnicode_AsUTF8AndSize(), does
/// not cache the UTF-8 in the str, except with the limited API (see ascii_text()).
class Utf8 {
 public:
  /// `text` must outlive this object. Throws BadValue for lone surrogates.
  explicit Utf8(PyObject* text);
  std::string_view view() const noexcept { return view_; }

 private:
  nb::object encoded_;
  std::string_view view_;
};

/// The decimal digits of an int. Throws BadValue if there are more digits than Python converts.
std::string digits_of(nb::handle integer);

/// True for a time object of the datetime module, numpy or pandas.
bool is_time(PyObject* object);
/// Converts a time object by `tenfold.dataset._ingest.values.time_count`. Empty for NaT (not a
/// time), which becomes null. Throws BadValue for a time that cannot be converted, or whose count
/// does not fit int64.
std::optional<RowTime> time_from(nb::handle object);

/// Converts a dense tensor or array of any library, or a complex number, to a contiguous tensor in
/// main memory, without a copy if possible. Empty for other objects, such as arrays of strings or
/// of Python objects.
std::optional<Tensor> array_from(nb::handle object);

/// Calls `use` with the C++ value of a scalar or array: nullptr for None and NaT, bool,
/// std::int64_t, std::uint64_t (only integers of at least 2^63), HugeInteger, double, RowText,
/// RowTime, or Tensor. Empty for lists, dicts, and objects that first need simple_value(). The
/// caller keeps a reference to `object`.
template <class Use>
auto visit_value(nb::handle object, const Use& use) -> std::optional<decltype(use(nullptr))> {
  PyObject* const raw = object.ptr();
  if (PyFloat_CheckExact(raw)) return use(float_value(raw));
  if (PyUnicode_Check(raw)) return use(RowText{ColumnKind::string, Utf8(raw).view()});
  if (raw == Py_None) return use(nullptr);
  if (PyBool_Check(raw)) return use(raw == Py_True);
  if (PyLong_Check(raw)) {
    int overflow = 0;
    const std::int64_t value = PyLong_AsLongLongAndOverflow(raw, &overflow);
    if (overflow == 0) return use(value);
    if (overflow > 0) {
      const std::uint64_t large = PyLong_AsUnsignedLongLong(raw);
      if (PyErr_Occurred() == nullptr) return use(large);
      PyErr_Clear();
    }
    return use(HugeInteger{digits_of(object)});
  }
  if (PyFloat_Check(raw)) return use(float_value(raw));
  if (PyBytes_Check(raw)) return use(RowText{ColumnKind::bytes, bytes_text(raw)});
  if (PyByteArray_Check(raw)) return use(RowText{ColumnKind::bytes, bytearray_text(raw)});
  if (PyDict_Check(raw) || is_sequence(raw)) return std::nullopt;
  if (is_time(raw)) {
    const auto time = time_from(object);
    return time ? use(*time) : use(nullptr);
  }
  if (const auto array = array_from(object)) return use(*array);
  return std::nullopt;
}

/// Converts an object that is neither of a built-in type of Python nor an array, by
/// `tenfold.dataset._ingest.values.simple`. Throws BadValue if the object cannot be converted.
nb::object simple_value(nb::handle object);

/// True for arrays, and for objects that first need simple_value(): neither plain Python values nor
/// times.
bool is_convertible(nb::handle object);

/// True for a Decimal, which has no column type.
bool is_decimal(nb::handle object);
inline constexpr const char* kDecimalRemedy = "; convert it with float() or str()";

/// Maximum nesting of lists. A list with more levels is assumed to contain itself.
inline constexpr std::size_t kMaxListDepth = 64;

/// The indices that lead to the first None in nested lists or tuples, the outermost first. Empty if
/// there is no None in the first `levels` levels.
std::vector<std::int64_t> indices_of_none(nb::handle value, std::size_t levels);

/// Describes a value for messages: "null", "3", "a list of string of length 2", "an object" (a
/// dict).
std::string found_text(nb::handle object);

/// Formats a value as json.dumps() does. Throws BadValue for a value that JSON cannot represent.
std::string json_of(nb::handle object);

/// The type of a value. Throws BadValue (without a column) if no column can hold it.
RowType row_type_of(nb::handle value);

}  // namespace tenfold::python

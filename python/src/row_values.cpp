#include "row_values.hpp"

#include <complex>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "array_in.hpp"
#include "base/text.hpp"
#include "gil.hpp"
#include "python_objects.hpp"
#include "tree_in.hpp"

namespace tenfold::python {
namespace {

std::string class_of(nb::handle object) { return std::string(type_name(object.ptr())); }

nb::object ingest_values() { return nb::module_::import_("tenfold.dataset._ingest.values"); }

/// The dtype for a format of the buffer protocol (PEP 3118) in native byte order; nullopt if there
/// is none.
std::optional<DType> dtype_of_format(std::string_view format, std::size_t itemsize) {
  if (!format.empty() && (format[0] == '@' || format[0] == '=')) format.remove_prefix(1);
  if (format == "?") return DType::bool_;
  if (format == "e") return DType::float16;
  if (format == "f") return DType::float32;
  if (format == "d") return DType::float64;
  if (format == "Zf") return DType::complex64;
  if (format == "Zd") return DType::complex128;
  static constexpr std::string_view kSigned = "bhilq";
  static constexpr std::string_view kUnsigned = "BHILQ";
  if (format.size() != 1) return std::nullopt;
  const bool is_signed = kSigned.find(format[0]) != std::string_view::npos;
  if (!is_signed && kUnsigned.find(format[0]) == std::string_view::npos) return std::nullopt;
  switch (itemsize) {
    case 1:
      return is_signed ? DType::int8 : DType::uint8;
    case 2:
      return is_signed ? DType::int16 : DType::uint16;
    case 4:
      return is_signed ? DType::int32 : DType::uint32;
    case 8:
      return is_signed ? DType::int64 : DType::uint64;
    default:
      return std::nullopt;
  }
}

/// Reads an object with the buffer protocol, such as a numpy array. Copies the elements if they are
/// not contiguous or not aligned. Empty if the object has no buffer, or if no dtype fits the format
/// of its elements.
std::optional<Tensor> tensor_of_buffer(nb::handle object) {
  struct Held {
    Py_buffer view{};
    ~Held() {
      if (!nb::is_alive()) return;
      const GilAcquire gil;
      PyBuffer_Release(&view);
    }
  };
  const auto held = std::make_shared<Held>();
  Py_buffer& view = held->view;
  if (PyObject_GetBuffer(object.ptr(), &view, PyBUF_FULL_RO) != 0) {
    PyErr_Clear();
    return std::nullopt;
  }
  const auto dtype = dtype_of_format(view.format == nullptr ? "B" : view.format,
                                     static_cast<std::size_t>(view.itemsize));
  if (!dtype) return std::nullopt;
  Shape shape(view.shape, view.shape + view.ndim);
  const auto* bytes = static_cast<const std::byte*>(view.buf);
  const auto size = static_cast<std::size_t>(view.len);
  const bool is_aligned =
      reinterpret_cast<std::uintptr_t>(bytes) % static_cast<std::size_t>(view.itemsize) == 0;
  if (is_aligned && PyBuffer_IsContiguous(&view, 'C') != 0) {
    return Tensor(*dtype, std::move(shape), Buffer::read_only({bytes, size}, held));
  }
  Buffer buffer = Buffer::allocate(size);
  if (view.len > 0 && PyBuffer_ToContiguous(buffer.mutable_data(), &view, view.len, 'C') != 0) {
    throw nb::python_error();
  }
  return Tensor(*dtype, std::move(shape), std::move(buffer));
}

bool is_plain(PyObject* object) {
  return object == Py_None || PyBool_Check(object) || PyFloat_Check(object) ||
         PyLong_Check(object) || PyUnicode_Check(object) || PyBytes_Check(object) ||
         PyByteArray_Check(object) || is_sequence(object) || PyDict_Check(object);
}

/// True for masked arrays of numpy. Their buffer also contains the masked elements.
bool is_masked_array(PyObject* object) {
  if (type_name(object).starts_with("numpy.")) return false;
  return PyObject_HasAttrString(object, "mask") != 0 &&
         PyObject_HasAttrString(object, "filled") != 0;
}

/// `depth`: the number of lists around a list.
void check_depth(std::size_t depth) {
  if (depth < kMaxListDepth) return;
  throw BadValue{"", "expected at most 64 nested lists, found more"};
}

/// Returns `value` or, if the reader cannot add it, the result of simple_value(). Repeats the
/// conversion until the reader can add the result.
nb::object known_value(nb::handle value) {
  nb::object known = nb::borrow(value);
  for (std::size_t depth = 0; is_convertible(known) && !array_from(known); ++depth) {
    check_depth(depth);
    known = simple_value(known);
  }
  return known;
}

/// Adds the types of a list, which is inside `depth` other lists, and of its items. Sets `refused`
/// to the error for the first item that add_item() refuses.
void add_list_types(ListTypes& types, PyObject* list, std::size_t depth,
                    std::optional<BadValue>& refused) {
  check_depth(depth);
  const std::size_t length = sequence_size(list);
  for (std::size_t i = 0; i < length && i < sequence_size(list); ++i) {
    const nb::object item = known_value(sequence_item(list, i));
    if (PyDict_Check(item.ptr())) {
      types.add_object();
    } else if (is_sequence(item.ptr())) {
      add_list_types(types, item.ptr(), depth + 1, refused);
    } else {
      const RowType type = row_type_of(item);
      const bool is_array = type.form == RowForm::list;
      const std::int64_t count = is_array ? array_from(item).value().shape()[0] : 0;
      if (!types.add_item(depth + 1, type, count) && !refused) {
        refused = BadValue{"", "expected values of one type in a list, found " +
                                   types.type().text() + " and " + found_text(item)};
      }
    }
  }
  types.add_list(depth, static_cast<std::int64_t>(length));
}

}  // namespace

Utf8::Utf8(PyObject* text) {
  if (const auto ascii = ascii_text(text)) [[likely]] {
    view_ = *ascii;
    return;
  }
  encoded_ = nb::steal(PyUnicode_AsUTF8String(text));
  if (!encoded_.is_valid()) {
    PyErr_Clear();
    throw BadValue{"",
                   "expected text, found a str with a lone surrogate, which UTF-8 cannot encode"};
  }
  view_ = bytes_text(encoded_.ptr());
}

std::string digits_of(nb::handle integer) {
  // Not str(), which a subclass of int may override.
  const nb::object digits = nb::steal(PyNumber_ToBase(integer.ptr(), 10));
  if (digits.is_valid()) return utf8(digits);
  if (PyErr_ExceptionMatches(PyExc_ValueError) == 0) throw nb::python_error();
  PyErr_Clear();
  throw BadValue{"", long_integer(std::nullopt)};
}

bool is_time(PyObject* object) {
  if (is_datetime(object)) return true;
  const auto name = type_name(object);
  return name == "numpy.datetime64" || name == "numpy.timedelta64";
}

std::optional<RowTime> time_from(nb::handle object) {
  try {
    const nb::tuple time = nb::borrow<nb::tuple>(ingest_values().attr("time_count")(object));
    if (time[0].is_none()) return std::nullopt;
    int overflow = 0;
    const std::int64_t count = PyLong_AsLongLongAndOverflow(nb::object(time[0]).ptr(), &overflow);
    if (overflow != 0) {
      throw BadValue{"", "expected a time that fits int64 in the unit \"" + utf8(time[1]) +
                             "\", found " + utf8(nb::str(object))};
    }
    return RowTime{count, utf8(time[1]), nb::cast<bool>(time[2]) ? Clock::utc : Clock::local};
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_ValueError)) throw;
    throw BadValue{"", utf8(nb::str(error.value()))};
  }
}

std::optional<Tensor> array_from(nb::handle object) {
  if (is_plain(object.ptr())) return std::nullopt;
  if (PyComplex_Check(object.ptr())) {
    return Tensor::scalar(std::complex<double>(PyComplex_RealAsDouble(object.ptr()),
                                               PyComplex_ImagAsDouble(object.ptr())));
  }
  if (auto tensor = tensor_of_torch(object)) return tensor->contiguous();
  if (is_masked_array(object.ptr())) return std::nullopt;
  if (PyObject_CheckBuffer(object.ptr()) && !PyMemoryView_Check(object.ptr())) {
    if (auto tensor = tensor_of_buffer(object)) return tensor;
  }
  if (!PyObject_HasAttrString(object.ptr(), "__dlpack__")) return std::nullopt;
  nb::dict holder;
  holder["value"] = object;
  try {
    const TensorDict::Item item = TreeBuilder("").root(holder, false).get("value");
    const auto* leaf = std::get_if<Leaf>(&item);
    if (leaf == nullptr || leaf->is_nested()) return std::nullopt;
    return leaf->tensor().contiguous();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    return std::nullopt;
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_Exception)) throw;
    return std::nullopt;
  }
}

nb::object simple_value(nb::handle object) {
  nb::object made;
  try {
    made = ingest_values().attr("simple")(object);
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_ValueError)) throw;
    throw BadValue{"", utf8(nb::str(error.value()))};
  }
  if (made.is(object)) {
    throw BadValue{"", "expected a number, text, bytes, None, a list, dict or array, found " +
                           class_of(object)};
  }
  return made;
}

bool is_convertible(nb::handle object) { return !is_plain(object.ptr()) && !is_time(object.ptr()); }

bool is_decimal(nb::handle object) {
  return !is_plain(object.ptr()) && nb::cast<bool>(ingest_values().attr("is_decimal")(object));
}

std::vector<std::int64_t> indices_of_none(nb::handle value, std::size_t levels) {
  if (levels == 0 || !is_sequence(value.ptr())) return {};
  for (std::size_t i = 0; i < sequence_size(value.ptr()); ++i) {
    const nb::handle item = sequence_item(value.ptr(), i);
    std::vector<std::int64_t> indices = indices_of_none(item, levels - 1);
    if (indices.empty() && !item.is_none()) continue;
    indices.insert(indices.begin(), static_cast<std::int64_t>(i));
    return indices;
  }
  return {};
}

std::string found_text(nb::handle object) {
  PyObject* const raw = object.ptr();
  if (raw == Py_None) return "null";
  if (PyDict_Check(raw)) return "an object";
  if (PyBool_Check(raw) || PyLong_Check(raw) || PyFloat_Check(raw) || PyUnicode_Check(raw) ||
      is_decimal(object)) {
    std::string text;
    try {
      text = utf8(nb::repr(object));
    } catch (nb::python_error& error) {
      if (!error.matches(PyExc_ValueError)) throw;
      return "an integer with too many digits";
    }
    std::size_t size = 60;
    if (text.size() <= size) return text;
    while (size > 0 && (text[size] & 0xC0) == 0x80) --size;  // whole characters only
    return text.substr(0, size) + "...";
  }
  try {
    if (is_time(raw)) return utf8(nb::str(object)) + ", " + row_type_of(object).text();
    const RowType type = row_type_of(object);
    if (type.form != RowForm::list) return type.text();
    const Py_ssize_t length = PyObject_Size(object.ptr());
    if (length >= 0) return type.text() + " of length " + std::to_string(length);
    PyErr_Clear();  // an object with __dlpack__, but without __len__
    return type.text();
  } catch (const BadValue&) {
    return class_of(object);
  }
}

std::string json_of(nb::handle object) {
  try {
    return utf8(ingest_values().attr("json_text")(object));
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_TypeError) && !error.matches(PyExc_ValueError) &&
        !error.matches(PyExc_RecursionError)) {
      throw;
    }
    throw BadValue{"", "expected a list that JSON can represent, found " + class_of(object) + ": " +
                           utf8(nb::str(error.value()))};
  }
}

RowType row_type_of(nb::handle value) {
  const nb::object known = known_value(value);
  PyObject* const raw = known.ptr();
  if (is_sequence(raw)) {
    ListTypes types;
    std::optional<BadValue> refused;
    add_list_types(types, raw, 0, refused);
    if (refused && !types.is_uneven()) throw *std::move(refused);
    return types.type();
  }
  auto type = visit_value(known, [](const auto& each) { return RowType::of(each); });
  if (!type) {
    throw BadValue{"", "expected a value that a column can store, found " + class_of(value)};
  }
  return *std::move(type);
}

}  // namespace tenfold::python

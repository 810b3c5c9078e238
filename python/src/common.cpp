#include "common.hpp"

#include <filesystem>
#include <utility>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/tree/typed_keys.hpp"
#include "gil.hpp"
#include "python_objects.hpp"

namespace tenfold::python {

std::string utf8(nb::handle text) {
  Py_ssize_t size = 0;
  if (const char* bytes = PyUnicode_AsUTF8AndSize(text.ptr(), &size)) {
    return {bytes, static_cast<std::size_t>(size)};
  }
  PyErr_Clear();
  const nb::object encoded =
      nb::steal(PyUnicode_AsEncodedString(text.ptr(), "utf-8", "surrogatepass"));
  if (!encoded.is_valid()) throw nb::python_error();
  return std::string(bytes_text(encoded.ptr()));
}

nb::object text_or_none(std::string_view utf8_bytes) {
  return utf8_bytes.empty() ? nb::none() : nb::object(text(utf8_bytes));
}

nb::str text(std::string_view utf8_bytes) {
  const auto size = static_cast<Py_ssize_t>(utf8_bytes.size());
  PyObject* decoded = PyUnicode_DecodeUTF8(utf8_bytes.data(), size, nullptr);
  if (decoded == nullptr) {
    PyErr_Clear();
    decoded = PyUnicode_DecodeUTF8(utf8_bytes.data(), size, "surrogatepass");
  }
  if (decoded == nullptr) {
    PyErr_Clear();
    decoded = PyUnicode_DecodeUTF8(utf8_bytes.data(), size, "surrogateescape");
  }
  if (decoded == nullptr) throw nb::python_error();
  return nb::steal<nb::str>(decoded);
}

Path path_from(nb::handle path) {
  PyObject* encoded = nullptr;
  if (PyUnicode_FSConverter(path.ptr(), &encoded) == 0) throw nb::python_error();
  const nb::object owner = nb::steal(encoded);
  return Path(std::string(bytes_text(encoded)));
}

std::vector<Path> paths_from(nb::handle sequence) {
  std::vector<Path> paths;
  for (const nb::handle item : sequence) paths.push_back(path_from(item));
  return paths;
}

Mode mode_from(std::string_view mode) {
  if (mode == "r") return Mode::read;
  if (mode == "c") return Mode::copy_on_write;
  if (mode == "r+") return Mode::write_through;
  throw base::invalid_argument()
      .part("mode")
      .problem("unknown mode")
      .expected("\"r\", \"c\" or \"r+\"")
      .found("\"", mode, "\"");
}

DType dtype_from(std::string_view name) {
  if (const auto dtype = dtype_from_name(name)) return *dtype;
  throw base::invalid_argument()
      .part("dtype")
      .problem("no such dtype")
      .expected("a name as torch spells it, such as \"float32\"")
      .found("\"", name, "\"");
}

nb::tuple tuple_of(const Shape& lengths) {
  nb::object tuple = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(lengths.size())));
  if (!tuple.is_valid()) throw nb::python_error();
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    PyObject* length = PyLong_FromLongLong(lengths[i]);
    if (length == nullptr) throw nb::python_error();
    set_tuple_item(tuple.ptr(), i, length);
  }
  return nb::borrow<nb::tuple>(tuple);
}

Shape shape_from(nb::handle sequence_of_int) {
  Shape shape;
  for (const nb::handle length : sequence_of_int) {
    std::int64_t number = 0;
    if (!nb::try_cast(length, number)) {
      throw base::invalid_argument()
          .part("shape")
          .expected("lengths that fit int64")
          .found(utf8(nb::repr(length)));
    }
    shape.push_back(number);
  }
  return shape;
}

std::string long_integer(std::optional<std::size_t> num_digits) {
  const nb::object most = nb::module_::import_("sys").attr("get_int_max_str_digits")();
  return "integer is too long: expected at most " + nb::cast<std::string>(nb::str(most)) +
         " digits, found " + (num_digits ? std::to_string(*num_digits) : "more") +
         "; sys.set_int_max_str_digits() changes what Python allows";
}

namespace {

nb::object list_of(const std::vector<Value>& items) {
  nb::list list;
  for (const Value& item : items) list.append(to_python(item));
  return list;
}

nb::object int_from(const std::string& digits) {
  nb::object number = nb::steal(PyLong_FromString(digits.c_str(), nullptr, 10));
  if (number.is_valid()) return number;
  if (PyErr_ExceptionMatches(PyExc_ValueError) == 0) throw nb::python_error();
  PyErr_Clear();
  throw base::unsupported().problem(long_integer(digits.size()));
}

nb::object dict_of(const Value::Object& object) {
  nb::object dict = object.ordered ? nb::module_::import_("collections").attr("OrderedDict")()
                                   : nb::object(nb::dict());
  for (const auto& [key, value] : object.members) {
    dict[key_from(key, object.int_keys, object.typed_keys)] = to_python(value);
  }
  return dict;
}

/// Creates an extended scalar by `special` of tenfold/_interop/objects.py.
nb::object special_of(const Value::Special& value) {
  const bool is_bytes =
      value.type == Value::Special::Type::bytes || value.type == Value::Special::Type::bytearray;
  const nb::object description =
      is_bytes ? nb::object(nb::bytes(value.text.data(), value.text.size())) : text(value.text);
  return nb::module_::import_("tenfold._interop.objects")
      .attr("special")(text(to_string(value.type)), description, list_of(value.items));
}

struct ToPython {
  nb::object operator()(Value::Null) const { return nb::none(); }
  nb::object operator()(bool value) const { return nb::bool_(value); }
  nb::object operator()(std::int64_t value) const { return nb::int_(value); }
  nb::object operator()(const Value::BigInt& value) const { return int_from(value.digits); }
  nb::object operator()(double value) const { return nb::float_(value); }
  nb::object operator()(const std::string& value) const { return text(value); }
  nb::object operator()(const Value::List& value) const { return list_of(value.items); }
  nb::object operator()(const Value::Tuple& value) const { return nb::tuple(list_of(value.items)); }
  nb::object operator()(const Value::Object& value) const { return dict_of(value); }
  nb::object operator()(const Value::Special& value) const { return special_of(value); }
};

}  // namespace

nb::object key_from(std::string_view key, bool int_keys, const TypedKeys& typed_keys) {
  if (int_keys) return int_from(std::string(key));
  const Value* typed = typed_keys.empty() ? nullptr : find_typed_key(typed_keys, key);
  return typed == nullptr ? nb::object(text(key)) : to_python(*typed);
}

nb::object to_python(const Value& value) { return std::visit(ToPython{}, value.data()); }

nb::object to_python(const Value& value, const TensorDict& node, std::string_view key) {
  try {
    return to_python(value);
  } catch (const Error& error) {
    throw Error(error).within("key ", base::quote(key)).path(node.where());
  }
}

std::shared_ptr<const void> keep_alive(nb::object object) {
  PyObject* kept = object.release().ptr();
  return {kept, [](const void* dropped) noexcept {
            // At exit, tensors may outlive the interpreter.
            if (!nb::is_alive()) return;
            const GilAcquire gil;
            Py_DECREF(static_cast<PyObject*>(const_cast<void*>(dropped)));
          }};
}

}  // namespace tenfold::python

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <tenfold/error.hpp>

#include "array_in.hpp"
#include "base/fail.hpp"
#include "base/prefetch.hpp"
#include "core/tensor/cast.hpp"
#include "core/tensor/integer_type.hpp"
#include "mapped_dict.hpp"
#include "os/thread/helper_thread.hpp"
#include "python_objects.hpp"
#include "row_values.hpp"

namespace tenfold::python {
namespace {

[[noreturn]] void raise_type(const std::string& message) {
  PyErr_SetObject(PyExc_TypeError, text(message).ptr());
  throw nb::python_error();
}

/// Returns a KeyIn that does not fit, for a key without the dictionary's type. Raises TypeError if
/// the key is not hashable.
KeyIn other_key(PyObject* key) {
  if (PyObject_Hash(key) == -1) throw nb::python_error();
  return {};
}

/// The UTF-8 of a str. If the str is not ASCII, Python caches the UTF-8 in the str object.
KeyIn text_key(PyObject* key) {
  if (const auto text = ascii_text(key)) return {true, *text};
  Py_ssize_t size = 0;
  const char* characters = PyUnicode_AsUTF8AndSize(key, &size);
  if (characters != nullptr) return {true, {characters, static_cast<std::size_t>(size)}};
  PyErr_Clear();  // lone surrogates, which no stored key contains
  return {};
}

/// Prefetches objects, which are scattered in memory.
void fetch_objects(std::span<PyObject* const> objects) {
  constexpr std::size_t kLineBytes = 64;
  for (PyObject* object : objects) {
    const auto* line = reinterpret_cast<const char*>(object);
    base::prefetch(line);
    base::prefetch(line + kLineBytes);  // the rest of a longer str or bytes
  }
}

/// The items of a list or tuple, as from sequence_items(). Empty for subclasses and other objects.
std::optional<std::span<PyObject* const>> items_of(nb::handle keys,
                                                   std::vector<PyObject*>& copies) {
  if (!PyList_CheckExact(keys.ptr()) && !PyTuple_CheckExact(keys.ptr())) return std::nullopt;
  return sequence_items(keys.ptr(), copies);
}

/// The characters of an ASCII str if `type` is string, or of a bytes object if `type` is bytes.
/// Empty for other keys.
std::optional<std::string_view> plain_text(PyObject* key, DictKeyType type) {
  if (type == DictKeyType::string && PyUnicode_CheckExact(key)) return ascii_text(key);
  if (type == DictKeyType::bytes && PyBytes_CheckExact(key)) return bytes_text(key);
  return std::nullopt;
}

/// True for integer dtypes whose values fit int64.
bool holds_keys(DType dtype) { return is_integer(dtype) && dtype != DType::uint64; }

bool is_numpy_integer(PyObject* key) {
  if (!PyIndex_Check(key)) return false;
  const auto name = type_name(key);
  return name.starts_with("numpy.") && !name.starts_with("numpy.bool") && name != "numpy.ndarray";
}

KeyIn int_key(PyObject* key) {
  nb::object index;
  if (!PyLong_Check(key)) {
    index = nb::steal(PyNumber_Index(key));
    if (!index.is_valid()) throw nb::python_error();
    key = index.ptr();
  }
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(key, &overflow);
  if (overflow != 0) return {};
  if (value == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
  return {true, {}, value};
}

}  // namespace

KeyIn key_from(PyObject* key, DictKeyType type) {
  switch (type) {
    case DictKeyType::string:
      if (PyUnicode_Check(key)) return text_key(key);
      break;
    case DictKeyType::bytes:
      if (PyBytes_Check(key)) {
        return {true, bytes_text(key)};
      }
      break;
    case DictKeyType::int64:
      if ((PyLong_Check(key) && !PyBool_Check(key)) || is_numpy_integer(key)) return int_key(key);
      if (const auto array = array_from(key);
          array && array->ndim() == 0 && holds_keys(array->dtype())) {
        return {true, {}, integer_at(array->dtype(), array->raw_data())};
      }
      break;
  }
  return other_key(key);
}

KeysIn::KeysIn(nb::handle keys, DictKeyType type) : type_(type) {
  if (PyDict_Check(keys.ptr())) {
    take_packed(keys);
    return;
  }
  if (PyUnicode_Check(keys.ptr()) || PyBytes_Check(keys.ptr())) {
    raise_type(std::string("keys: expected several keys, found one ") +
               std::string(type_name(keys.ptr())));
  }
  if (PyList_Check(keys.ptr()) || PyTuple_Check(keys.ptr()) || !take_array(keys)) {
    take_objects(keys);
  }
}

/// Copies short keys to `copies`, and sets `texts` to the copies. Returns false if plain_text() is
/// empty for a key, or a key is longer than 256 bytes. Prefetches the next objects while it copies.
bool KeysIn::copy_short_texts(std::span<PyObject* const> keys, std::string& copies,
                              std::span<std::string_view> texts) const {
  constexpr std::size_t kAtOnce = 128;
  constexpr std::size_t kMaxBytes = 256;
  constexpr std::size_t kUsualBytes = 24;
  copies.reserve(keys.size() * kUsualBytes);
  fetch_objects(keys.first(std::min(kAtOnce, keys.size())));
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (i % kAtOnce == 0 && i + kAtOnce < keys.size()) {
      fetch_objects(keys.subspan(i + kAtOnce, std::min(kAtOnce, keys.size() - i - kAtOnce)));
    }
    const auto text = plain_text(keys[i], type_);
    if (!text || text->size() > kMaxBytes) return false;
    copies.append(*text);
    texts[i] = *text;
  }
  const char* at = copies.data();
  for (std::string_view& text : texts) {
    text = {at, text.size()};
    at += text.size();
  }
  return true;
}

/// If copy_short_texts() accepts all keys, takes the copies and returns true; otherwise returns
/// false.
bool KeysIn::take_short_texts(std::span<PyObject* const> keys) {
  constexpr std::size_t kAtOnce = 64;
  texts_.resize(keys.size());
  copies_.resize(keys.size() / kAtOnce + 1);
  std::atomic<bool> all_short{true};
  const auto copy_part = [&](std::size_t begin, std::size_t end) {
    if (!all_short) return;
    const std::size_t count = end - begin;
    if (!copy_short_texts(keys.subspan(begin, count), copies_[begin / kAtOnce],
                          std::span(texts_).subspan(begin, count))) {
      all_short.store(false, std::memory_order_relaxed);
    }
  };
  // This thread holds the GIL, so no Python code runs while the helper thread reads the objects. A
  // build with the limited API uses no helper thread, because the functions of that API require the
  // GIL.
  if constexpr (kLimitedApi) {
    copy_part(0, keys.size());
  } else {
    os::run_with_helper(keys.size(), kAtOnce, copy_part);
  }
  if (!all_short) {
    texts_.clear();
    return false;
  }
  size_ = keys.size();
  return true;
}

void KeysIn::take_objects(nb::handle keys) {
  std::vector<PyObject*> copies;
  if (const auto items = items_of(keys, copies)) {
    if (type_ != DictKeyType::int64 && take_short_texts(*items)) return;
    fetch_objects(*items);
  }
  // A new tuple, so that no other code can remove keys while they are read without the GIL.
  objects_ = nb::steal(PySequence_Tuple(keys.ptr()));
  if (!objects_.is_valid()) throw nb::python_error();
  size_ = tuple_size(objects_.ptr());
  const bool is_text = type_ != DictKeyType::int64;
  if (is_text) {
    texts_.reserve(size_);
  } else {
    ints_.reserve(size_);
  }
  for (std::size_t i = 0; i < size_; ++i) {
    const KeyIn key = key_from(tuple_item(objects_.ptr(), i), type_);
    if (!key.fits && all_fit_) {
      all_fit_ = false;
      for (std::size_t k = 0; k < i; ++k) places_.push_back(k);
    }
    if (!key.fits) continue;
    if (!all_fit_) places_.push_back(i);
    if (is_text) {
      texts_.push_back(key.text);
    } else {
      ints_.push_back(key.number);
    }
  }
  span_ = ints_;
}

bool KeysIn::take_array(nb::handle keys) {
  std::optional<Tensor> array = tensor_of_torch(keys);
  if (!array) array = array_from(keys);
  if (!array && is_torch_tensor(keys)) {
    raise_type("keys: expected a dense tensor of integers, found a tensor without dense elements");
  }
  if (!array) return false;
  const bool is_empty = array->numel() == 0;  // np.array([]) has the dtype float64
  if (array->ndim() != 1 || (!is_empty && !holds_keys(array->dtype()))) {
    raise_type("keys: expected a one-dimensional tensor of integers except uint64, found " +
               to_string(array->dtype()) + " with ndim " + std::to_string(array->ndim()));
  }
  size_ = static_cast<std::size_t>(array->numel());
  all_fit_ = type_ == DictKeyType::int64;
  values_ = array->contiguous();
  if (values_.dtype() != DType::int64) {
    Tensor wide = Tensor::zeros(DType::int64, values_.shape());
    if (size_ > 0) {
      cast_elements(values_.dtype(), values_.raw_data(), DType::int64, wide.mutable_raw_data(),
                    size_);
    }
    values_ = std::move(wide);
  }
  span_ = values_.span<std::int64_t>();
  return true;
}

void KeysIn::take_packed(nb::handle keys) {
  const auto part = [&](const char* key, DType dtype) -> Tensor {
    PyObject* found = PyDict_GetItemString(keys.ptr(), key);
    std::optional<Tensor> tensor;
    if (found != nullptr) tensor = tensor_of_torch(found);
    if (found != nullptr && !tensor) tensor = array_from(found);
    if (!tensor || tensor->dtype() != dtype || tensor->ndim() != 1) {
      std::string found_text = "no tensor or array";
      if (tensor) {
        found_text = to_string(tensor->dtype()) + " with ndim " + std::to_string(tensor->ndim());
      }
      raise_type("packed keys: \"" + std::string(key) + "\": expected " + to_string(dtype) +
                 " of one dimension, found " + found_text);
    }
    return tensor->contiguous();
  };
  values_ = part("values", DType::uint8);
  const Tensor offsets = part("offsets", DType::int64);
  const auto ends = offsets.span<std::int64_t>();
  const std::int64_t limit = values_.numel();
  std::int64_t begin = ends.empty() ? -1 : ends[0];
  bool fits = begin >= 0 && begin <= limit;
  for (std::size_t i = 1; i < ends.size() && fits; ++i) {
    fits = ends[i] >= ends[i - 1] && ends[i] <= limit;
  }
  if (!fits) {
    throw base::invalid_argument()
        .part("packed keys: \"offsets\"")
        .expected("at least one offset, all from 0 to ", limit, ", none below the one before it")
        .found(ends.empty() ? "no offsets" : "offsets that decrease or are out of range");
  }
  size_ = ends.size() - 1;
  const auto* bytes = reinterpret_cast<const char*>(values_.raw_data());
  texts_.reserve(size_);
  for (std::size_t i = 0; i < size_; ++i) {
    texts_.emplace_back(bytes + ends[i], static_cast<std::size_t>(ends[i + 1] - ends[i]));
  }
  all_fit_ = type_ != DictKeyType::int64;
}

DictKeys KeysIn::some() const {
  if (type_ == DictKeyType::int64) return span_;
  return std::span<const std::string_view>(texts_);
}

std::vector<std::int64_t> KeysIn::rows_of_all(std::vector<std::int64_t> rows) const {
  if (all_fit_) return rows;
  std::vector<std::int64_t> all(size_, -1);
  for (std::size_t i = 0; i < places_.size(); ++i) all[places_[i]] = rows[i];
  return all;
}

nb::object KeysIn::object(std::size_t i) const {
  if (objects_.is_valid()) {
    return nb::borrow(tuple_item(objects_.ptr(), i));
  }
  if (!span_.empty()) return nb::int_(span_[i]);
  if (type_ == DictKeyType::string) return text(texts_[i]);
  return nb::steal(
      PyBytes_FromStringAndSize(texts_[i].data(), static_cast<Py_ssize_t>(texts_[i].size())));
}

}  // namespace tenfold::python

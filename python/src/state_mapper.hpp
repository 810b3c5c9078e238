#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "arguments.hpp"
#include "array_out.hpp"
#include "base/fail.hpp"
#include "common.hpp"
#include "mapper/saved_mapper.hpp"
#include "mapper/state_index.hpp"
#include "python_objects.hpp"

namespace tenfold::python {

/// The UTF-8 of the items of a list of str (or bytes). Points into the items, and keeps them alive
/// by a copy of the list.
class Utf8Texts {
 public:
  explicit Utf8Texts(nb::handle list) : objects_(nb::steal(PySequence_Tuple(list.ptr()))) {
    if (!objects_.is_valid()) throw nb::python_error();
    const auto size = tuple_size(objects_.ptr());
    views_.reserve(size);
    for (std::size_t i = 0; i < size; ++i) {
      views_.push_back(view(tuple_item(objects_.ptr(), i)));
    }
  }
  const std::vector<std::string_view>& views() const noexcept { return views_; }

 private:
  std::string_view view(PyObject* object) {
    if (PyBytes_Check(object)) return bytes_text(object);
    Py_ssize_t size = 0;
    const char* characters = PyUnicode_AsUTF8AndSize(object, &size);
    if (characters != nullptr) return {characters, static_cast<std::size_t>(size)};
    if (PyErr_ExceptionMatches(PyExc_UnicodeEncodeError) == 0) throw nb::python_error();
    PyErr_Clear();
    return copies_.emplace_back(utf8(object));  // lone surrogates
  }

  nb::object objects_;
  std::vector<std::string_view> views_;
  std::deque<std::string> copies_;
};

/// An array of int64 of shape [n], one item per value.
inline nb::object int_array(const std::vector<std::int64_t>& values) {
  return array_of(Tensor::from(std::span<const std::int64_t>(values)), "states");
}

/// Formats an object for messages, in at most 80 characters.
std::string shown_object(nb::handle object);
/// Item `i` of a list. Raises IndexError if Python code that converted earlier states has made the
/// list shorter.
nb::object state_at(nb::handle states, std::size_t i);
/// The function that formats states for StateNames. It may be called without the GIL, and `states`
/// must outlive it.
ShownKey shown_states(const nb::list& states);
/// Returns a function that names a mapper in messages: by its path or, if `path` is None, by
/// `what`.
std::function<base::Where()> place_in_messages(nb::handle path, const char* what);
/// Raises TypeError for an object that is not a state. `expected`: the types of a state. `batch`:
/// the items of a batch, such as "states": the message states that a batch is a list of them.
[[noreturn]] void refuse_state(nb::handle state, const std::string& expected,
                               const std::string& batch);

/// The MapperHead of a mapper that Python restores. Reads only the entry "config" of `tree`.
MapperHead restored_head(const NodeHandle& tree);
/// The entries of a tree by their names.
nb::dict item_handles_of(const TensorDict& node);
/// Converts a dense torch tensor or numpy array. `what` names it in messages.
Tensor dense_tensor(nb::handle array, const std::string& what);

void bind_state_mapper(nb::module_& module);
void bind_hierarchy(nb::module_& module);

}  // namespace tenfold::python

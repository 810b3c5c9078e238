#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common.hpp"

namespace tenfold::python {

/// "tensor", "scalar" or "columns"; anything else is Error(invalid_argument).
DictValueForm form_from(std::string_view name);
/// "error" or "last"; anything else is Error(invalid_argument).
DuplicateKeys duplicates_from(std::string_view name);

/// Keys of Python's, without copies where they lie in memory as the engine wants them: a list or
/// any other iterable of keys, an int64 tensor or array, or packed text: {"values": uint8 [M],
/// "offsets": int64 [B + 1]}. The memory is that of the objects, which are kept; short texts of a
/// list are copied, which is sooner done than to count references of objects that lie anywhere.
///
/// Needs the GIL to be made and to go; not to be read.
class KeysIn {
 public:
  /// Raises TypeError for a single str or bytes, what is not iterable, and keys that are not
  /// hashable, as a dict does.
  KeysIn(nb::handle keys, DictKeyType type);

  std::size_t size() const noexcept { return size_; }
  /// True if all are of the dictionary's type.
  bool all_fit() const noexcept { return all_fit_; }
  /// Those of the dictionary's type.
  DictKeys some() const;
  /// Rows of some() become rows of all: keys of another type have none.
  std::vector<std::int64_t> rows_of_all(std::vector<std::int64_t> rows) const;
  /// Key number `i` as an object.
  nb::object object(std::size_t i) const;

 private:
  void take_objects(nb::handle keys);
  bool take_short_texts(std::span<PyObject* const> keys);
  bool copy_short_texts(std::span<PyObject* const> keys, std::string& copies,
                        std::span<std::string_view> texts) const;
  void take_packed(nb::handle keys);
  bool take_array(nb::handle keys);

  DictKeyType type_;
  std::size_t size_ = 0;
  std::vector<std::string_view> texts_;
  std::vector<std::int64_t> ints_;
  std::vector<std::size_t> places_;  ///< of those that are of the type; unless all are
  bool all_fit_ = true;
  nb::object objects_;                  ///< a tuple of them, unless they were copied
  std::vector<std::string> copies_;     ///< of short texts, one after the other
  Tensor values_;                       ///< of an array; of packed text its bytes
  std::span<const std::int64_t> span_;  ///< of an array
};

/// One key, if it is of the dictionary's type.
struct KeyIn {
  bool fits = false;
  std::string_view text{};
  std::int64_t number = 0;
};
/// Raises TypeError for one that is not hashable.
KeyIn key_from(PyObject* key, DictKeyType type);

void bind_mapped_dict(nb::module_& module);

}  // namespace tenfold::python

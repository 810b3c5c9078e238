#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common.hpp"

namespace tenfold::python {

/// Parses "tensor", "scalar" or "columns"; anything else is Error(invalid_argument).
DictValueForm form_from(std::string_view name);
/// Parses "error" or "last"; anything else is Error(invalid_argument).
DuplicateKeys duplicates_from(std::string_view name);

/// Keys passed from Python, without a copy if they are in memory in the engine's form: a list or
/// any other iterable of keys, a tensor or array of integers, or packed strings: {"values": uint8
/// [M], "offsets": int64 [B + 1]}. Keeps the objects alive. Short strings of a list or tuple are
/// copied, which is faster than changing the reference counts of objects that are scattered in
/// memory.
///
/// Requires the GIL for construction, destruction and object(), not for the other members.
class KeysIn {
 public:
  /// Raises TypeError for a single str or bytes, an object that is not iterable, and keys that are
  /// not hashable, as a dict does; also for arrays and packed keys of another dtype or several
  /// dimensions. Throws Error(invalid_argument) for packed keys whose offsets do not ascend, or are
  /// outside of the values.
  KeysIn(nb::handle keys, DictKeyType type);

  std::size_t size() const noexcept { return size_; }
  /// True if all keys have the dictionary's type.
  bool all_fit() const noexcept { return all_fit_; }
  /// The keys of the dictionary's type.
  DictKeys some() const;
  /// Expands rows of some() to rows of all keys: keys of another type get -1.
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
  std::vector<std::size_t> places_;  ///< positions of the keys of the dictionary's type; empty if
                                     ///< all or none are
  bool all_fit_ = true;
  nb::object objects_;                  ///< a tuple of the keys of an iterable, unless copied
  std::vector<std::string> copies_;     ///< concatenated short strings
  Tensor values_;                       ///< of an array; bytes of packed strings
  std::span<const std::int64_t> span_;  ///< of an array
};

/// One key, if it has the dictionary's type.
struct KeyIn {
  bool fits = false;
  std::string_view text{};
  std::int64_t number = 0;
};
/// Raises TypeError if the key is not hashable.
KeyIn key_from(PyObject* key, DictKeyType type);

void bind_mapped_dict(nb::module_& module);

}  // namespace tenfold::python

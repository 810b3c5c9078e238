#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common.hpp"

namespace tenfold::python {

/// Parses "tensor", "scalar" or "columns". Throws Error(invalid_argument) for any other name.
DictValueForm form_from(std::string_view name);
/// Parses "error" or "last". Throws Error(invalid_argument) for any other name.
DuplicateKeys duplicates_from(std::string_view name);

/// Keys passed from Python: a list or any other iterable of keys, a tensor or array of integers, or
/// packed strings: {"values": uint8 [M], "offsets": int64 [B + 1]}. Keys whose memory has the form
/// that the engine needs are not copied, and their objects are kept alive. Short strings of a list
/// or tuple are always copied, which is faster than changing the reference counts of objects that
/// are scattered in memory.
///
/// Requires the GIL for construction, destruction and object(), not for the other members.
class KeysIn {
 public:
  /// Raises TypeError for a single str or bytes, for an object that is not iterable and, as a dict
  /// does, for a key that is not hashable. Also raises TypeError for an array that is not
  /// one-dimensional or has no integer dtype that fits int64, for a tensor that is not dense, and
  /// for packed keys of another dtype or number of dimensions. Throws
  /// Error(invalid_argument) for packed keys with offsets that decrease or are outside of the
  /// values.
  KeysIn(nb::handle keys, DictKeyType type);

  std::size_t size() const noexcept { return size_; }
  /// True if all keys have the dictionary's type.
  bool all_fit() const noexcept { return all_fit_; }
  /// Only those keys that have the dictionary's type.
  DictKeys some() const;
  /// Expands `rows`, which has one row for each key of some(), to one row for each key. Keys that
  /// do not have the dictionary's type get -1.
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
  std::vector<std::size_t> places_;  ///< positions of the keys that have the dictionary's type;
                                     ///< empty if all keys have it or none has it
  bool all_fit_ = true;
  nb::object objects_;                  ///< a tuple of the keys of an iterable, unless copied
  std::vector<std::string> copies_;     ///< concatenated short strings
  Tensor values_;                       ///< the array of integers, or the bytes of packed strings
  std::span<const std::int64_t> span_;  ///< the elements of the array of integers
};

/// One key, if it has the dictionary's type.
struct KeyIn {
  bool fits = false;
  std::string_view text{};
  std::int64_t number = 0;
};
/// Converts a key. Raises TypeError if the key is not hashable.
KeyIn key_from(PyObject* key, DictKeyType type);

void bind_mapped_dict(nb::module_& module);

}  // namespace tenfold::python

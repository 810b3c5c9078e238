#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tenfold/schema.hpp>

#include "ingest/arrow/abi.hpp"

namespace tenfold {

/// Physical layout of an Arrow array.
enum class ArrowKind : std::uint8_t {
  null,         ///< no buffers
  boolean,      ///< one bit per value
  number,       ///< values of `stored`
  text,         ///< strings or binary: offsets and bytes
  text_view,    ///< strings or binary: views of 16 bytes, and buffers that they point into
  fixed_bytes,  ///< `width` bytes per value
  decimal,      ///< integers of `width` bytes, scaled by 10^-scale
  list,         ///< offsets into the child
  list_view,    ///< offsets and sizes
  fixed_list,   ///< `width` values of the child per list
  record,       ///< a struct
  map,          ///< a list of key-value records
};

/// The type of an Arrow array, parsed and checked.
struct ArrowType {
  ArrowKind kind = ArrowKind::null;
  std::string name;  ///< name of the field
  std::string format;
  DType stored = DType::float64;  ///< kind number: dtype in Arrow's buffer
  DType dtype = DType::float64;   ///< kinds number, boolean: dtype of the column; int64 if there
                                  ///< is a unit
  std::string unit;               ///< unit of dates, times, durations and intervals: "months",
                                  ///< "days", "s", "ms", "us", "ns"
  std::string field_unit;         ///< the value of "unit" in the metadata of the field
  bool is_binary = false;         ///< kinds text, text_view, fixed_bytes: bytes instead of UTF-8
  bool is_large = false;          ///< kinds text, list, list_view: 64-bit offsets
  std::int64_t width = 0;
  std::int32_t scale = 0;
  std::vector<ArrowType> children;
  /// If not null, the values are indices (of type `stored`) into an array of this type.
  std::shared_ptr<const ArrowType> dictionary;

  /// The type of the values. For a dictionary-encoded type, the type of the values of its
  /// dictionary, which may be dictionary-encoded, too.
  const ArrowType& values() const noexcept { return dictionary ? dictionary->values() : *this; }
  bool is_list() const noexcept {
    return kind == ArrowKind::list || kind == ArrowKind::list_view || kind == ArrowKind::fixed_list;
  }
};

/// Parses a schema. Throws Error(corrupt) if it is invalid. Throws Error(unsupported), naming the
/// field, for unknown formats and for types that no column can store: unions, intervals of several
/// units, run-end encoding.
ArrowType parse_arrow_type(const ArrowSchema& schema, const std::string& where);

/// Values [begin, begin + size) of an array, counted from the start of its buffers: `begin`
/// includes ArrowArray::offset. The array must have passed check_arrow_array().
struct ArrowSlice {
  const ArrowArray* array = nullptr;
  const ArrowType* type = nullptr;
  std::int64_t begin = 0;
  std::int64_t size = 0;

  static ArrowSlice whole(const ArrowArray& array, const ArrowType& type) {
    return {&array, &type, array.offset, array.length};
  }
  ArrowSlice part(std::int64_t first, std::int64_t count) const {
    return {array, type, begin + first, count};
  }
  /// The same rows of child `index` of a struct.
  ArrowSlice field(std::size_t index) const {
    const ArrowArray* child = array->children[index];
    return {child, &type->children[index], child->offset + begin, size};
  }
  /// Items [first, first + count) of a list's child.
  ArrowSlice items(std::int64_t first, std::int64_t count) const {
    const ArrowArray* child = array->children[0];
    return {child, type->children.data(), child->offset + first, count};
  }
  /// Entry `index` of the dictionary.
  ArrowSlice entry(std::int64_t index) const {
    return {array->dictionary, type->dictionary.get(), array->dictionary->offset + index, 1};
  }

  template <class T>
  T value_at(std::size_t buffer, std::int64_t i) const {
    T value;
    const auto* bytes = static_cast<const std::byte*>(array->buffers[buffer]);
    std::memcpy(&value, bytes + static_cast<std::size_t>(begin + i) * sizeof(T), sizeof(T));
    return value;
  }
  /// Points to number `i` in Arrow's buffer; if dictionary-encoded, to its index in the dictionary.
  const std::byte* number_at(std::int64_t i) const {
    return static_cast<const std::byte*>(array->buffers[1]) +
           static_cast<std::size_t>(begin + i) * itemsize(type->stored);
  }
  /// Bit `i` of a buffer: buffer 0 has the validity, buffer 1 the values of a boolean array.
  bool bit_at(std::size_t buffer, std::int64_t i) const {
    const auto* bits = static_cast<const std::uint8_t*>(array->buffers[buffer]);
    const std::int64_t at = begin + i;
    return (bits[at >> 3] >> (at & 7) & 1) != 0;
  }
  /// False if there are certainly no nulls. Ignores nulls inside the dictionary.
  bool may_have_nulls() const {
    return type->kind == ArrowKind::null ||
           (array->null_count != 0 && array->n_buffers > 0 && array->buffers[0] != nullptr);
  }
  /// False if value `i` is null. Does not check whether its entry in the dictionary is null; the
  /// caller must do that.
  bool is_valid(std::int64_t i) const {
    if (type->kind == ArrowKind::null) return false;
    return !may_have_nulls() || bit_at(0, i);
  }

  /// Begin and end of the items of list `i` in the child, or of the bytes of string `i`.
  std::pair<std::int64_t, std::int64_t> range_at(std::int64_t i) const;
  /// A value of a string, view or fixed-size binary array.
  std::string_view text_at(std::int64_t i) const;
  /// Value `i` of a dictionary-encoded array: an index in the dictionary.
  std::int64_t index_at(std::int64_t i) const;
  /// A decimal as text: sign, digits and decimal point.
  std::string decimal_at(std::int64_t i) const;
};

/// Checks an array, so that readers do not access memory out of bounds. Checks the counts and
/// pointers of buffers and children, and that offsets do not decrease. Checks that lists stay
/// inside the child, views inside their buffers, and indices inside the dictionary. Does not check
/// null views, null indices, indices in null structs and null lists of a list view. Cannot detect
/// that a buffer is too small, except a buffer that views point into, because the interface
/// provides the sizes of no other buffers. Throws Error(corrupt) naming the column.
void check_arrow_array(const ArrowArray& array, const ArrowType& type, const std::string& where);

}  // namespace tenfold

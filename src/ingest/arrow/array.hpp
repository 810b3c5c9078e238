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

/// How the buffers of an Arrow array are laid out.
enum class ArrowKind : std::uint8_t {
  null,         ///< no buffers
  boolean,      ///< a bit a value
  number,       ///< values of `stored`
  text,         ///< offsets and bytes
  text_view,    ///< views of 16 bytes, and buffers they point into
  fixed_bytes,  ///< `width` bytes a value
  decimal,      ///< integers of `width` bytes, to be divided by 10^scale
  list,         ///< offsets into the child
  list_view,    ///< offsets and sizes
  fixed_list,   ///< `width` values of the child
  record,       ///< a struct
  map,          ///< a list of records of key and value
};

/// The type of an Arrow array, parsed and checked.
struct ArrowType {
  ArrowKind kind = ArrowKind::null;
  std::string name;  ///< of the field
  std::string format;
  DType stored = DType::float64;  ///< number: in Arrow's buffer
  DType dtype = DType::float64;   ///< number: in our column; dates and times are int64
  std::string unit;               ///< of dates, times, durations: "days", "s", "ms", "us", "ns"
  bool is_binary = false;         ///< text: bytes rather than UTF-8
  bool is_large = false;          ///< text, lists: offsets of 64 bits
  std::int64_t width = 0;
  std::int32_t scale = 0;
  std::vector<ArrowType> children;
  /// The values are positions (of `stored`) in an array of this type.
  std::shared_ptr<const ArrowType> dictionary;

  /// What the values are: those of the dictionary, if there is one.
  const ArrowType& values() const noexcept { return dictionary ? *dictionary : *this; }
  bool is_list() const noexcept {
    return kind == ArrowKind::list || kind == ArrowKind::list_view || kind == ArrowKind::fixed_list;
  }
};

/// Throws Error(corrupt) for what is no schema of Arrow's, Error(unsupported) naming the column for
/// a type that no column can hold (unions, intervals of several units, run-end encoding).
ArrowType parse_arrow_type(const ArrowSchema& schema, const std::string& where);

/// Values [begin, begin + size) of an array, counted from the start of its buffers: Arrow's own
/// offset is in `begin`. Only arrays that check_arrow_array() let pass may be looked at.
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
  /// The values of child `index` of a struct, those of the same rows.
  ArrowSlice field(std::size_t index) const {
    const ArrowArray* child = array->children[index];
    return {child, &type->children[index], child->offset + begin, size};
  }
  /// Items [first, first + count) of the child of a list.
  ArrowSlice items(std::int64_t first, std::int64_t count) const {
    const ArrowArray* child = array->children[0];
    return {child, type->children.data(), child->offset + first, count};
  }
  /// Value `index` of the dictionary.
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
  /// The bits of that buffer: of validity (0), of booleans (1).
  bool bit_at(std::size_t buffer, std::int64_t i) const {
    const auto* bits = static_cast<const std::uint8_t*>(array->buffers[buffer]);
    const std::int64_t at = begin + i;
    return (bits[at >> 3] >> (at & 7) & 1) != 0;
  }
  /// False if there can be no null.
  bool may_have_nulls() const {
    return type->kind == ArrowKind::null ||
           (array->null_count != 0 && array->n_buffers > 0 && array->buffers[0] != nullptr);
  }
  /// Dictionaries may hold nulls, too: those are for whoever follows the index.
  bool is_valid(std::int64_t i) const {
    if (type->kind == ArrowKind::null) return false;
    return !may_have_nulls() || bit_at(0, i);
  }

  /// Of a list: its items, from where to where in the child.
  std::pair<std::int64_t, std::int64_t> range_at(std::int64_t i) const;
  /// Of text, views and fixed bytes.
  std::string_view text_at(std::int64_t i) const;
  /// Of a dictionary: the index.
  std::int64_t index_at(std::int64_t i) const;
  /// Of a decimal: its digits.
  std::string decimal_at(std::int64_t i) const;
};

/// Checks what the interface lets a consumer check: counts and pointers of buffers and children,
/// that offsets ascend and stay inside the child, that indices stay inside the dictionary. How
/// long a buffer is the interface does not say.
/// Throws Error(corrupt) naming the column.
void check_arrow_array(const ArrowArray& array, const ArrowType& type, const std::string& where);

}  // namespace tenfold

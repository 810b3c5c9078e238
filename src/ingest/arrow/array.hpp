#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "ingest/arrow/type.hpp"

namespace tenfold {

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

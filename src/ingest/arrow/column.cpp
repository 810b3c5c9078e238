#include "ingest/arrow/column.hpp"

#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <tenfold/value.hpp>

#include "base/text.hpp"
#include "core/tensor/cast.hpp"
#include "dataset/row_bytes.hpp"
#include "ingest/arrow/value.hpp"
#include "ingest/table/convert_chunk.hpp"

namespace tenfold {
namespace {

class RowsReader {
 public:
  RowsReader(const ArrowColumn& column, const ArrowSlice& batch)
      : column_(column.column),
        is_json_(column.is_json),
        is_nested_(column.is_nested),
        is_shape_given_(column.is_shape_given) {
    rows_ = batch;
    for (const std::size_t field : column.fields) {
      merge_validity(rows_);
      rows_ = rows_.field(field);
    }
    merge_validity(rows_);
    made_.chunk.num_rows = made_.owned.num_rows = rows_.size;
  }

  ArrowRows run() {
    if (is_json_) {
      read_json();
    } else if (column_.is_text()) {
      if (column_.ragged) {
        read_lists([&](const ArrowSlice& items) { return add_texts(items); });
      } else {
        read_texts();
      }
    } else if (column_.ragged) {
      read_lists([&](const ArrowSlice& items) { return add_numbers(items); });
    } else if (column_.shape.empty()) {
      read_scalars();
    } else {
      read_fixed();
    }
    return finish();
  }

 private:
  ColumnBuilder& owned() { return made_.owned; }

  bool is_valid(std::int64_t row) const {
    return owned_valid().empty() || owned_valid()[static_cast<std::size_t>(row)] != 0;
  }
  const std::vector<std::uint8_t>& owned_valid() const { return made_.owned.valid; }

  /// Marks the rows that are null in `level`, the field or an enclosing struct, as not valid.
  void merge_validity(const ArrowSlice& level) {
    if (!level.may_have_nulls()) return;
    auto& valid = made_.owned.valid;
    if (valid.empty()) valid.assign(static_cast<std::size_t>(level.size), 1);
    bool any_null = false;
    for (std::int64_t i = 0; i < level.size; ++i) {
      auto& flag = valid[static_cast<std::size_t>(i)];
      flag = static_cast<std::uint8_t>(flag & (level.is_valid(i) ? 1 : 0));
      any_null |= flag == 0;
    }
    if (!any_null) valid.clear();
  }

  /// Records an error for the row, and marks the row as null.
  void mark_bad(std::int64_t row, std::string what) {
    auto& valid = made_.owned.valid;
    if (valid.empty()) valid.assign(static_cast<std::size_t>(rows_.size), 1);
    valid[static_cast<std::size_t>(row)] = 0;
    made_.bad.push_back({column_.name(), std::move(what), row});
  }

  ArrowRows finish() {
    ColumnChunk& chunk = made_.chunk;
    if (chunk.values.data() == nullptr) chunk.values = owned().values;
    chunk.ends = owned().ends;
    chunk.item_ends = owned().item_ends;
    chunk.valid = owned().valid;
    return std::move(made_);
  }

  std::byte* grow(std::size_t size_bytes) { return owned().values.extend(size_bytes); }

  // --- numbers ---

  /// Copies all numbers, converted to the column's dtype. Nulls may get unspecified values, which
  /// the caller replaces.
  void copy_numbers(const ArrowSlice& numbers, std::byte* into) const {
    const ArrowType& type = *numbers.type;
    const DType dtype = column_.dtype;
    const auto count = static_cast<std::size_t>(numbers.size);
    if (type.dictionary) {
      const std::size_t size = itemsize(dtype);
      for (std::int64_t i = 0; i < numbers.size; ++i) {
        std::byte* to = into + static_cast<std::size_t>(i) * size;
        if (numbers.is_valid(i)) {
          copy_numbers(numbers.entry(numbers.index_at(i)), to);
        } else {
          fill_null(dtype, to, 1);
        }
      }
    } else if (type.kind == ArrowKind::null) {
      fill_null(dtype, into, numbers.size);
    } else if (type.kind == ArrowKind::boolean) {
      for (std::int64_t i = 0; i < numbers.size; ++i) {
        into[i] = static_cast<std::byte>(numbers.bit_at(1, i) ? 1 : 0);
      }
    } else {
      cast_elements(type.stored, numbers.number_at(0), dtype, into, count);
    }
  }

  /// True if Arrow's buffer can be stored without conversion.
  bool is_stored_so(const ArrowSlice& numbers) const {
    const ArrowType& type = *numbers.type;
    return type.kind == ArrowKind::number && !type.dictionary && type.stored == column_.dtype &&
           numbers.size > 0;
  }

  /// True if value `i` is null, or its entry in the dictionary is null.
  static bool is_null(const ArrowSlice& values, std::int64_t i) {
    if (!values.is_valid(i)) return true;
    return values.type->dictionary && is_null(values.entry(values.index_at(i)), 0);
  }

  /// True if the dictionary, or the dictionary by which it is itself encoded, may have nulls.
  static bool dictionary_may_have_nulls(const ArrowSlice& values) {
    if (!values.type->dictionary) return false;
    const ArrowSlice all = ArrowSlice::whole(*values.array->dictionary, *values.type->dictionary);
    return all.may_have_nulls() || dictionary_may_have_nulls(all);
  }

  void read_scalars() {
    merge_dictionary_nulls();
    if (owned_valid().empty() && is_stored_so(rows_)) {
      made_.chunk.values = {rows_.number_at(0),
                            static_cast<std::size_t>(rows_.size) * itemsize(column_.dtype)};
      return;
    }
    const std::size_t size = itemsize(column_.dtype);
    std::byte* into = grow(static_cast<std::size_t>(rows_.size) * size);
    // Look up the indices of valid rows only: an index in a null struct may be out of range.
    const bool is_indexed = rows_.type->dictionary != nullptr;
    if (!is_indexed) copy_numbers(rows_, into);
    for (std::int64_t i = 0; i < rows_.size; ++i, into += size) {
      if (!is_valid(i)) {
        fill_null(column_.dtype, into, 1);
      } else if (is_indexed) {
        copy_numbers(rows_.part(i, 1), into);
      }
    }
  }

  void merge_dictionary_nulls() {
    if (!dictionary_may_have_nulls(rows_)) return;
    auto& valid = made_.owned.valid;
    for (std::int64_t i = 0; i < rows_.size; ++i) {
      if (!is_valid(i) || !is_null(rows_, i)) continue;
      if (valid.empty()) valid.assign(static_cast<std::size_t>(rows_.size), 1);
      valid[static_cast<std::size_t>(i)] = 0;
    }
  }

  /// Copies numbers to `into`, nulls as NaN. Returns an error message if there is a null and the
  /// dtype has no NaN, else "".
  std::string copy_items(const ArrowSlice& numbers, std::byte* into) const {
    copy_numbers(numbers, into);
    const bool dictionary = numbers.type->dictionary != nullptr;
    if (!dictionary && !numbers.may_have_nulls()) return {};
    for (std::int64_t i = 0; i < numbers.size; ++i) {
      if (!is_null(numbers, i)) continue;
      if (!is_floating_point(column_.dtype)) {
        return "expected numbers in the list, found null; only lists of floats may contain null, "
               "which is stored as NaN";
      }
      fill_null(column_.dtype, into + static_cast<std::size_t>(i) * itemsize(column_.dtype), 1);
    }
    return {};
  }

  /// Sets `flat` to the innermost numbers of (nested) fixed-size lists. Returns an error message if
  /// a list inside another list is null, else "".
  std::string flatten(ArrowSlice lists, ArrowSlice& flat) const {
    bool outermost = true;
    while (lists.type->kind == ArrowKind::fixed_list) {
      for (std::int64_t i = 0; !outermost && i < lists.size; ++i) {
        if (!lists.is_valid(i)) return "expected a list in the list, found null";
      }
      outermost = false;
      lists = lists.items(lists.begin * lists.type->width, lists.size * lists.type->width);
    }
    flat = lists;
    return {};
  }

  void read_fixed() {
    const std::int64_t per_row = numel_of(column_.shape);
    const std::size_t row_bytes = static_cast<std::size_t>(per_row) * itemsize(column_.dtype);
    ArrowSlice flat;
    if (owned_valid().empty() && flatten(rows_, flat).empty() && is_stored_so(flat) &&
        !flat.may_have_nulls()) {
      made_.chunk.values = {flat.number_at(0), static_cast<std::size_t>(rows_.size) * row_bytes};
      return;
    }
    std::byte* into = grow(static_cast<std::size_t>(rows_.size) * row_bytes);
    for (std::int64_t row = 0; row < rows_.size; ++row, into += row_bytes) {
      std::string wrong;
      if (is_valid(row)) {
        wrong = flatten(rows_.part(row, 1), flat);
        if (wrong.empty()) wrong = copy_items(flat, into);
        if (!wrong.empty()) mark_bad(row, std::move(wrong));
      }
      if (!is_valid(row)) fill_null(column_.dtype, into, per_row);
    }
  }

  // --- ragged rows ---

  /// Uses lists of numbers in place if possible. Otherwise calls `add` for the items of each row
  /// that is not null. `add` appends them and returns "", or an error message.
  void read_lists(const std::function<std::string(const ArrowSlice&)>& add) {
    if (!column_.is_text() && !is_nested_ && read_lists_in_place()) return;
    auto& ends = owned().ends;
    ends.reserve(static_cast<std::size_t>(rows_.size));
    for (std::int64_t row = 0; row < rows_.size; ++row) {
      const std::size_t values_before = owned().values.size();
      const std::size_t items_before = owned().item_ends.size();
      if (is_valid(row)) {
        const auto [begin, end] = rows_.range_at(row);
        std::string wrong = add(rows_.items(begin, end - begin));
        if (!wrong.empty()) {
          mark_bad(row, std::move(wrong));
          owned().values.resize(values_before);
          owned().item_ends.resize(items_before);
        } else {
          num_items_ += end - begin;
        }
      }
      ends.push_back(num_items_);
    }
  }

  /// If lists are contiguous, without nulls and of the column's dtype, uses their numbers without a
  /// copy. Otherwise returns false.
  bool read_lists_in_place() {
    if (rows_.type->kind != ArrowKind::list || !owned_valid().empty() || rows_.size == 0) {
      return false;
    }
    const std::int64_t begin = rows_.range_at(0).first;
    const std::int64_t end = rows_.range_at(rows_.size - 1).second;
    ArrowSlice flat = rows_.items(begin, end - begin);
    if (flat.type->kind == ArrowKind::fixed_list) {
      if (flat.may_have_nulls() || !flatten(flat, flat).empty()) return false;
    }
    if (!is_stored_so(flat) || flat.may_have_nulls()) return false;
    made_.chunk.values = {flat.number_at(0),
                          static_cast<std::size_t>(flat.size) * itemsize(column_.dtype)};
    auto& ends = owned().ends;
    ends.resize(static_cast<std::size_t>(rows_.size));
    for (std::int64_t row = 0; row < rows_.size; ++row) {
      ends[static_cast<std::size_t>(row)] = rows_.range_at(row).second - begin;
    }
    return true;
  }

  std::string add_numbers(const ArrowSlice& items) {
    if (is_nested_) {
      if (is_shape_given_ && !has_shape_of_column(items))
        return "expected lists of the shape " + base::list_text(column_.shape) +
               " in the list, found another shape";
      return add_nested(items);
    }
    ArrowSlice flat = items;
    if (items.type->kind == ArrowKind::fixed_list) {
      for (std::int64_t i = 0; i < items.size; ++i) {
        if (!items.is_valid(i)) return "expected a list in the list, found null";
      }
      std::string wrong = flatten(items, flat);
      if (!wrong.empty()) return wrong;
    }
    return copy_items(flat, grow(static_cast<std::size_t>(flat.size) * itemsize(column_.dtype)));
  }

  bool has_shape_of_column(const ArrowSlice& items) const {
    Shape shape = column_.shape;
    return have_shape(items, 0, shape);
  }

  /// Appends the numbers of nested lists, whose lengths were checked before.
  std::string add_nested(const ArrowSlice& items) {
    if (!items.type->is_list()) {
      const std::size_t size = itemsize(column_.dtype);
      const auto first = static_cast<std::int64_t>(owned().values.size() / size);
      std::string wrong = copy_items(items, grow(static_cast<std::size_t>(items.size) * size));
      if (wrong.empty()) note_nulls(items, first);
      return wrong;
    }
    std::string wrong;
    for (std::int64_t i = 0; i < items.size && wrong.empty(); ++i) {
      const auto [begin, end] = items.range_at(i);
      wrong = add_nested(items.items(begin, end - begin));
    }
    return wrong;
  }

  /// Records which items are null. `first`: the index of the first item among the numbers of the
  /// chunk.
  void note_nulls(const ArrowSlice& items, std::int64_t first) {
    if (!items.type->dictionary && !items.may_have_nulls()) return;
    for (std::int64_t i = 0; i < items.size; ++i) {
      if (is_null(items, i)) made_.null_items.push_back(first + i);
    }
  }

  // --- strings ---

  static std::string not_utf8(std::string_view text) {
    return "expected UTF-8, found " + base::quote(text, 40);
  }

  /// Appends one string. Returns an error message, or "".
  std::string add_one_text(const ArrowSlice& slice, std::int64_t i) {
    if (!slice.is_valid(i)) {
      const bool is_string = column_.kind == ColumnKind::string;
      return std::string("expected ") + (is_string ? "text" : "bytes") + " in the list, found null";
    }
    if (slice.type->dictionary) return add_one_text(slice.entry(slice.index_at(i)), 0);
    if (slice.type->kind == ArrowKind::decimal) {
      owned().values.append(slice.decimal_at(i));
      return {};
    }
    const std::string_view text = slice.text_at(i);
    if (column_.kind == ColumnKind::string && !base::is_utf8(text)) {
      return not_utf8(text);
    }
    owned().values.append(text);
    return {};
  }

  std::string add_texts(const ArrowSlice& items) {
    for (std::int64_t i = 0; i < items.size; ++i) {
      std::string wrong = add_one_text(items, i);
      if (!wrong.empty()) return wrong;
      owned().end_item();
    }
    return {};
  }

  void read_texts() {
    merge_dictionary_nulls();
    if (read_texts_in_place()) return;
    auto& ends = owned().ends;
    ends.reserve(static_cast<std::size_t>(rows_.size));
    for (std::int64_t row = 0; row < rows_.size; ++row) {
      if (is_valid(row)) {
        std::string wrong = add_one_text(rows_, row);
        if (!wrong.empty()) mark_bad(row, std::move(wrong));
      }
      ends.push_back(static_cast<std::int64_t>(owned().values.size()));
    }
  }

  bool read_texts_in_place() {
    const bool plain = rows_.type->kind == ArrowKind::text && !rows_.type->dictionary;
    if (!plain || !owned_valid().empty() || rows_.size == 0) return false;
    const std::int64_t begin = rows_.range_at(0).first;
    const std::int64_t end = rows_.range_at(rows_.size - 1).second;
    const auto* bytes = static_cast<const char*>(rows_.array->buffers[2]) + begin;
    const std::string_view all(begin == end ? "" : bytes, static_cast<std::size_t>(end - begin));
    const bool is_string = column_.kind == ColumnKind::string;
    if (is_string && !base::is_utf8(all)) return false;
    auto& ends = owned().ends;
    ends.resize(static_cast<std::size_t>(rows_.size));
    for (std::int64_t row = 0; row < rows_.size; ++row) {
      const std::int64_t row_end = rows_.range_at(row).second - begin;
      // The whole buffer is UTF-8, so each row is valid unless it ends inside a character.
      const auto at = static_cast<std::size_t>(row_end);
      if (is_string && at < all.size() && (static_cast<unsigned char>(all[at]) & 0xC0) == 0x80) {
        ends.clear();
        return false;
      }
      ends[static_cast<std::size_t>(row)] = row_end;
    }
    made_.chunk.values = {reinterpret_cast<const std::byte*>(all.data()), all.size()};
    return true;
  }

  void read_json() {
    merge_dictionary_nulls();
    for (std::int64_t row = 0; row < rows_.size; ++row) {
      if (is_valid(row)) {
        std::optional<std::string> other_bytes;
        const Value value = arrow_value(rows_, row, &other_bytes);
        if (other_bytes) {
          mark_bad(row, not_utf8(*other_bytes));
        } else {
          owned().values.append(to_json(value));
        }
      }
      owned().ends.push_back(static_cast<std::int64_t>(owned().values.size()));
    }
  }

  const Column& column_;
  bool is_json_;
  bool is_nested_;
  bool is_shape_given_;
  ArrowSlice rows_;
  ArrowRows made_;
  std::int64_t num_items_ = 0;
};

}  // namespace

ArrowRows read_arrow_column(const ArrowColumn& column, const ArrowSlice& batch) {
  return RowsReader(column, batch).run();
}

}  // namespace tenfold

#include "dataset/row_bytes.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/tensor/cast.hpp"

namespace tenfold {
namespace {

using Part = LeafRole::Part;

std::uint64_t row_bytes_of(const Column& column, Part part) {
  switch (part) {
    case Part::values:
      return nbytes_of(column.dtype, column.shape);
    case Part::ends:
    case Part::item_ends:
      return sizeof(std::int64_t);
    case Part::valid:
      return 1;
  }
  return 0;
}

/// Checks a column of rows against the column in which it is to be stored.
class Checker {
 public:
  Checker(const Column& column, const BatchColumn& found, std::int64_t num_rows,
          const base::Where& where)
      : column_(column), found_(found), num_rows_(num_rows), where_(where) {}

  void run() const {
    const Tensor& values = found_.values;
    if (found_.is_padded) fail("rows", "rows without padding", "padded ones");
    if (values.dtype() != column_.dtype) {
      fail("dtype", to_string(column_.dtype), to_string(values.dtype()));
    }
    if (values.ndim() < 1) fail("shape", "at least one dimension (the rows)", "[]");
    const Shape inner(values.shape().begin() + 1, values.shape().end());
    if (inner != column_.shape) {
      fail("shape of a row", base::list_text(column_.shape), base::list_text(inner));
    }
    if (!column_.has_ends()) {
      check_length(values, num_rows_, "rows");
    } else if (column_.ragged && column_.is_text()) {
      if (items() < 0) fail_shape(found_.item_offsets, "int64 [items + 1]", "item offsets");
      check_offsets(found_.offsets, num_rows_, items(), "offsets");
      const auto offsets = found_.offsets.span<std::int64_t>();
      if (offsets.front() != 0 || offsets.back() != items()) {
        fail("offsets", "first 0 and last " + std::to_string(items()), "other offsets");
      }
      check_offsets(found_.item_offsets, items(), values.shape()[0], "item offsets");
      check_strings(found_.item_offsets);
    } else {
      check_offsets(found_.offsets, num_rows_, values.shape()[0], "offsets");
      check_strings(found_.offsets);
    }
    check_valid();
  }

 private:
  [[noreturn]] void fail(const std::string& part, const std::string& expected,
                         const std::string& found) const {
    throw base::invalid_argument(where_)
        .part("column ", base::quote(column_.name()), ": ", part)
        .expected(expected)
        .found(found);
  }

  [[noreturn]] void fail_shape(const Tensor& tensor, const std::string& expected,
                               const char* part) const {
    fail(part, expected, to_string(tensor.dtype()) + " " + base::list_text(tensor.shape()));
  }

  /// The number of items, computed from the shape of the item offsets; -1 if they are not 1-D.
  std::int64_t items() const {
    const Shape& shape = found_.item_offsets.shape();
    return shape.size() == 1 ? shape[0] - 1 : -1;
  }

  void check_length(const Tensor& tensor, std::int64_t expected, const char* part) const {
    if (tensor.shape()[0] == expected) return;
    fail(part, std::to_string(expected), std::to_string(tensor.shape()[0]));
  }

  void check_offsets(const Tensor& offsets, std::int64_t count, std::int64_t limit,
                     const char* part) const {
    const bool fits = offsets.dtype() == DType::int64 && offsets.ndim() == 1 && count >= 0 &&
                      offsets.shape()[0] == count + 1;
    if (!fits) fail_shape(offsets, "int64 [" + std::to_string(count + 1) + "]", part);
    if (!offsets.is_contiguous()) fail(part, "a contiguous tensor", "a strided one");
    const auto values = offsets.span<std::int64_t>();
    if (values.front() >= 0 && values.back() <= limit &&
        std::is_sorted(values.begin(), values.end())) {
      return;
    }
    fail(part, "nondecreasing numbers in [0, " + std::to_string(limit) + "]", "others");
  }

  /// Checks that the strings between these offsets are UTF-8.
  void check_strings(const Tensor& offsets) const {
    if (column_.kind != ColumnKind::string) return;
    const auto numbers = offsets.span<std::int64_t>();
    const Tensor values = found_.values.contiguous();
    const std::string_view all(reinterpret_cast<const char*>(values.raw_data()),
                               static_cast<std::size_t>(values.nbytes()));
    const auto between = [&](std::int64_t begin, std::int64_t end) {
      return all.substr(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
    };
    const auto is_inside_character = [&](std::int64_t offset) {
      const auto at = static_cast<std::size_t>(offset);
      return at < all.size() && (static_cast<unsigned char>(all[at]) & 0xC0U) == 0x80U;
    };
    // Check all strings in one call first, because a call for each short string takes longer.
    if (base::is_utf8(between(numbers.front(), numbers.back())) &&
        std::ranges::none_of(numbers, is_inside_character)) {
      return;
    }
    for (std::size_t i = 0; i + 1 < numbers.size(); ++i) {
      const std::string_view text = between(numbers[i], numbers[i + 1]);
      if (base::is_utf8(text)) continue;
      const auto rows = found_.offsets.span<std::int64_t>();
      const auto row =
          column_.ragged
              ? std::ranges::upper_bound(rows, static_cast<std::int64_t>(i)) - rows.begin() - 1
              : static_cast<std::ptrdiff_t>(i);
      fail("row " + std::to_string(row), "UTF-8", base::quote(text));
    }
  }

  void check_valid() const {
    const Tensor& valid = found_.valid;
    const bool is_bool = valid.dtype() == DType::bool_;
    // If no validity is given, `valid` is a default Tensor.
    if (!is_bool && valid.ndim() == 1 && valid.numel() == 0) return;
    if (!column_.nullable) fail_shape(valid, "none, as the column is not nullable", "valid");
    if (is_bool && valid.ndim() == 1 && valid.shape()[0] == num_rows_) return;
    fail_shape(valid, "bool [" + std::to_string(num_rows_) + "]", "valid");
  }

  const Column& column_;
  const BatchColumn& found_;
  std::int64_t num_rows_;
  const base::Where& where_;
};

/// Converts offsets [n + 1] of a batch to end offsets [n] of rows that are stored after `before`
/// elements.
Tensor ends_of(const Tensor& offsets, std::int64_t before) {
  const auto values = offsets.span<std::int64_t>();
  std::vector<std::int64_t> ends(values.size() - 1);
  for (std::size_t i = 0; i < ends.size(); ++i) {
    ends[i] = before + values[i + 1] - values[0];
  }
  return Tensor::from(std::span<const std::int64_t>(ends));
}

/// The elements of `values` that `offsets` cover: [first offset, last offset).
Tensor named_by(const Tensor& offsets, const Tensor& values) {
  const auto numbers = offsets.span<std::int64_t>();
  return values.narrow(numbers.front(), numbers.back()).contiguous();
}

/// Sets `valid` to false for rows that have elements, all of them NaN, and to true for all other
/// rows.
template <class T>
void mark_numbers(const Tensor& values, std::uint64_t row_elements, Tensor& valid) {
  const auto elements = values.span<T>();
  for (std::size_t row = 0; row < static_cast<std::size_t>(valid.numel()); ++row) {
    const auto begin = elements.begin() + static_cast<std::ptrdiff_t>(row * row_elements);
    const bool missing =
        row_elements > 0 && std::all_of(begin, begin + static_cast<std::ptrdiff_t>(row_elements),
                                        [](T element) { return element != element; });
    valid.mutable_raw_data()[row] = static_cast<std::byte>(missing ? 0 : 1);
  }
}

}  // namespace

void fill_null(DType dtype, std::byte* elements, std::int64_t count) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  std::array<std::byte, 16> element{};
  const std::size_t size = static_cast<std::size_t>(count) * itemsize(dtype);
  if (size == 0) return;
  if (is_floating_point(dtype)) {
    cast_elements(DType::float64, reinterpret_cast<const std::byte*>(&kNaN), dtype, element.data(),
                  1);
  }
  // Copy one element, then double the filled part each time: a call per element would take longer
  // than copying the bytes.
  std::size_t filled = itemsize(dtype);
  std::memcpy(elements, element.data(), filled);
  while (filled < size) {
    const std::size_t more = std::min(filled, size - filled);
    std::memcpy(elements + filled, elements, more);
    filled += more;
  }
}

Tensor values_of(const Column& column, const BatchColumn& found, std::int64_t num_rows) {
  Tensor values = found.values.contiguous();
  if (!column.nullable || found.valid.dtype() != DType::bool_ || values.nbytes() == 0 ||
      !is_floating_point(values.dtype()) || !can_cast(DType::float64, values.dtype())) {
    return values;
  }
  const Tensor valid = found.valid.contiguous();
  const std::span flags(valid.raw_data(), static_cast<std::size_t>(num_rows));
  if (std::ranges::find(flags, std::byte{0}) == flags.end()) return values;
  const Tensor filled = Tensor::zeros(values.dtype(), values.shape());
  const auto row_bytes = static_cast<std::size_t>(values.nbytes()) / flags.size();
  for (std::size_t row = 0; row < flags.size(); ++row) {
    std::byte* const into = filled.mutable_raw_data() + row * row_bytes;
    if (flags[row] == std::byte{0}) {
      fill_null(values.dtype(), into, numel_of(column.shape));
    } else {
      std::memcpy(into, values.raw_data() + row * row_bytes, row_bytes);
    }
  }
  return filled;
}

Tensor valid_of(const Column& column, const BatchColumn& found, std::int64_t num_rows) {
  if (found.valid.dtype() == DType::bool_) return found.valid.contiguous();
  Tensor valid = Tensor::zeros(DType::bool_, {num_rows});
  if (num_rows == 0) return valid;
  std::memset(valid.mutable_raw_data(), 1, static_cast<std::size_t>(num_rows));
  if (column.has_ends()) return valid;
  const auto row_elements = static_cast<std::uint64_t>(numel_of(column.shape));
  Tensor values = found.values.contiguous();
  if (values.dtype() == DType::float32) {
    mark_numbers<float>(values, row_elements, valid);
  } else if (is_floating_point(values.dtype()) && can_cast(values.dtype(), DType::float64)) {
    const Tensor wide = Tensor::zeros(DType::float64, values.shape());
    cast_elements(values.dtype(), values.raw_data(), DType::float64, wide.mutable_raw_data(),
                  static_cast<std::size_t>(values.numel()));
    mark_numbers<double>(wide, row_elements, valid);
  }
  return valid;
}

std::vector<LeafRole> leaf_roles(const Schema& schema) {
  std::vector<LeafRole> roles;
  for (std::size_t i = 0; i < schema.size(); ++i) {
    const Column& column = schema.columns()[i];
    const auto add = [&](Part part, const KeyPath& key, bool unbatched) {
      roles.push_back({i, part, key, unbatched, row_bytes_of(column, part)});
    };
    add(Part::values, column.leaf, column.has_ends());
    if (column.has_ends()) add(Part::ends, column.end_leaf, false);
    if (column.ragged && column.is_text()) add(Part::item_ends, column.item_end_leaf, true);
    if (column.nullable) add(Part::valid, column.valid_leaf, false);
  }
  return roles;
}

const BatchColumn* find_column(const Batch& rows, const Column& column) {
  for (const BatchColumn& found : rows.columns()) {
    if (found.column.path == column.path) return &found;
  }
  return nullptr;
}

void check_rows(const Schema& schema, const Batch& rows, const base::Where& where, bool some) {
  for (const BatchColumn& found : rows.columns()) {
    const Column* column = schema.find(found.column.path);
    if (column != nullptr && column->path == found.column.path) continue;
    throw base::invalid_argument(where)
        .part("column ", base::quote(found.column.name()))
        .expected("a column of the data set")
        .found("one that the data set does not have");
  }
  for (const Column& column : schema.columns()) {
    const BatchColumn* found = find_column(rows, column);
    if (found == nullptr && some) continue;
    if (found == nullptr) {
      throw base::invalid_argument(where)
          .part("column ", base::quote(column.name()))
          .expected("the column in the rows")
          .found("none");
    }
    Checker(column, *found, rows.num_rows(), where).run();
  }
}

Batch rows_between(const Batch& rows, std::int64_t begin, std::int64_t end) {
  std::vector<BatchColumn> columns = rows.columns();
  for (BatchColumn& column : columns) {
    column.values = column.values.narrow(begin, end);
    if (column.valid.dtype() == DType::bool_) column.valid = column.valid.narrow(begin, end);
  }
  return {end - begin, std::move(columns)};
}

std::vector<Tensor> leaf_tensors(const std::vector<LeafRole>& roles, const Schema& schema,
                                 const Batch& rows, const std::vector<std::int64_t>& lengths) {
  std::vector<Tensor> made;
  made.reserve(roles.size());
  // The first leaves of a ragged string column are the values, the end offsets of rows (in items)
  // and the end offsets of items (in bytes). The first leaves of any other column with end offsets
  // are the values and the end offsets of rows (in elements).
  for (std::size_t i = 0; i < roles.size(); ++i) {
    const Column& column = schema.columns()[roles[i].column];
    const BatchColumn& found = *find_column(rows, column);
    const bool in_items = column.ragged && column.is_text();
    switch (roles[i].part) {
      case Part::values:
        if (!column.has_ends()) {
          made.push_back(values_of(column, found, rows.num_rows()));
        } else if (!in_items) {
          made.push_back(named_by(found.offsets, found.values));
        } else {
          made.push_back(named_by(found.item_offsets, found.values));
        }
        break;
      case Part::ends:
        made.push_back(ends_of(found.offsets, lengths[in_items ? i + 1 : i - 1]));
        break;
      case Part::item_ends:
        made.push_back(ends_of(found.item_offsets, lengths[i - 2]));
        break;
      case Part::valid:
        made.push_back(valid_of(column, found, rows.num_rows()));
        break;
    }
  }
  return made;
}

}  // namespace tenfold

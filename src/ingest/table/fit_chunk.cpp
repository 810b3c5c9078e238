#include "ingest/table/fit_chunk.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/text.hpp"
#include "core/tensor/cast.hpp"
#include "core/tensor/integer_type.hpp"
#include "ingest/table/convert_chunk.hpp"

namespace tenfold {

bool has_same_storage(const Column& from, const Column& to) {
  return from.kind == to.kind && from.dtype == to.dtype && from.shape == to.shape &&
         from.ragged == to.ragged;
}

namespace {

/// The range of an integer type, both ends inclusive.
struct Range {
  std::int64_t least;
  std::uint64_t most;
};

Range range_of(DType dtype) {
  const auto bits = static_cast<unsigned>(itemsize(dtype) * 8);
  if (dtype == DType::bool_) return {0, 1};
  if (dtype < DType::int8) return {0, std::numeric_limits<std::uint64_t>::max() >> (64 - bits)};
  const std::uint64_t most = std::numeric_limits<std::uint64_t>::max() >> (65 - bits);
  return {-static_cast<std::int64_t>(most) - 1, most};
}

template <class T>
T element_at(const std::byte* elements, std::int64_t i) {
  T value;
  std::memcpy(&value, elements + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
  return value;
}

template <class T>
std::int64_t beyond(const std::byte* elements, Range range, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const T value = element_at<T>(elements, i);
    if constexpr (std::is_signed_v<T>) {
      if (value < range.least) return i;
      if (value > 0 && static_cast<std::uint64_t>(value) > range.most) return i;
    } else {
      if (value > range.most) return i;
    }
  }
  return count;
}

std::int64_t integer_beyond(DType from, const std::byte* elements, Range range,
                            std::int64_t count) {
  return with_integer_type(from, [&]<class T>(T) { return beyond<T>(elements, range, count); });
}

/// Index of the first element for which `fits(double)` is false; `count` if there is none.
template <class Fits>
std::int64_t float_not_fitting(DType from, const std::byte* elements, std::int64_t count,
                               const Fits& fits) {
  for (std::int64_t i = 0; i < count; ++i) {
    double value = 0;
    if (from == DType::float64) {
      value = element_at<double>(elements, i);
    } else {
      cast_elements(from, elements + static_cast<std::size_t>(i) * itemsize(from), DType::float64,
                    reinterpret_cast<std::byte*>(&value), 1);
    }
    if (!fits(value)) return i;
  }
  return count;
}

/// The dtype of the real and imaginary parts of a complex dtype. Returns a real dtype unchanged.
DType part_of(DType dtype) {
  if (dtype == DType::complex32) return DType::float16;
  if (dtype == DType::complex64) return DType::float32;
  return dtype == DType::complex128 ? DType::float64 : dtype;
}

/// True if `value` is out of the range of the float dtype `to`: a conversion does not round it, but
/// returns infinity, NaN or the maximum of the dtype. False if `value` is NaN.
bool is_out_of_range(double value, DType to) {
  if (std::isnan(value)) return false;
  if (to == DType::float8_e8m0fnu && !(value > 0)) return true;  // it has neither sign nor 0
  // The conversion saturates at the maximum, 448. Values up to 464 are rounded to 448.
  if (to == DType::float8_e4m3fn) return std::abs(value) > 464;
  double back = 0;
  std::byte stored[16];
  cast_elements(DType::float64, reinterpret_cast<const std::byte*>(&value), to, stored, 1);
  cast_elements(to, stored, DType::float64, reinterpret_cast<std::byte*>(&back), 1);
  return std::isinf(value) ? back != value : !std::isfinite(back);
}

}  // namespace

std::int64_t first_not_fitting(DType from, const std::byte* elements, DType to,
                               std::int64_t count) {
  if (from == to) return count;
  if (!can_cast(from, to)) return 0;
  if (from == DType::bool_ && to != DType::float8_e8m0fnu) return count;
  if (is_integer(to) || to == DType::bool_) {
    const Range range = range_of(to);
    if (is_integer(from)) return integer_beyond(from, elements, range, count);
    const auto least = static_cast<double>(range.least);
    // The first integer above the range is a power of two, which a double represents exactly.
    const double end =
        range.most == 1 ? 2.0 : std::ldexp(1.0, static_cast<int>(std::bit_width(range.most)));
    return float_not_fitting(from, elements, count, [&](double value) {
      return value >= least && value < end && value == std::trunc(value);
    });
  }
  if (is_complex(to)) {
    const std::int64_t parts = is_complex(from) ? 2 : 1;
    return first_not_fitting(part_of(from), elements, part_of(to), parts * count) / parts;
  }
  if (!is_floating_point(to)) return count;
  if (is_integer(from) && (to == DType::float32 || to == DType::bfloat16)) return count;
  if (to == DType::float64 || (to == DType::float32 && itemsize(from) < 4)) return count;
  if (to == DType::float32 && from == DType::float64) {
    return float_not_fitting(from, elements, count, [](double value) {
      return !std::isfinite(value) || std::isfinite(static_cast<float>(value));
    });
  }
  return float_not_fitting(from, elements, count,
                           [&](double value) { return !is_out_of_range(value, to); });
}

namespace {

class ChunkConverter {
  static constexpr const char* kFoundNull = "null; make the column nullable in the schema";

 public:
  ChunkConverter(const Column& from, const ColumnChunk& chunk, const Column& to,
                 std::vector<BadValue>& bad)
      : from_(from), chunk_(chunk), to_(to), bad_(bad), made_(to) {}

  ColumnBuilder run() {
    if (!to_.is_text() && !from_.is_text()) {
      if (!convert_all()) {
        for_each_row([&](std::int64_t row, std::int64_t begin, std::int64_t end) {
          numbers(row, begin, end);
        });
      }
    } else if (to_.is_text() && from_.kind == to_.kind && from_.ragged == to_.ragged) {
      texts();
    } else if (becomes_text()) {
      ColumnBuilder text = convert_chunk(from_, chunk_, text_column());
      const ColumnChunk view = text.view();
      Column column = text_column();
      return ChunkConverter(column, view, to_, bad_).run();
    } else {
      for_each_row([&](std::int64_t row, std::int64_t, std::int64_t) {
        if (!missing(row)) mismatch(row, described(from_));
      });
    }
    made_.num_rows = chunk_.num_rows;
    made_.valid.clear();
    if (to_.nullable) made_.valid.assign(chunk_.valid.begin(), chunk_.valid.end());
    return std::move(made_);
  }

 private:
  /// True if convert_chunk() converts the numbers to the strings of the requested column.
  bool becomes_text() const {
    if (to_.kind != ColumnKind::string || from_.is_text()) return false;
    return !to_.ragged || (from_.ragged ? from_.shape.empty() : from_.shape.size() == 1);
  }

  Column text_column() const {
    Column column = to_;
    column.nullable = !chunk_.valid.empty();
    return column;
  }

  bool is_valid(std::int64_t row) const {
    return chunk_.valid.empty() || chunk_.valid[static_cast<std::size_t>(row)] != 0;
  }

  template <class Use>
  void for_each_row(const Use& use) const {
    std::int64_t begin = 0;
    for (std::int64_t row = 0; row < chunk_.num_rows; ++row) {
      const std::int64_t end =
          from_.has_ends() ? chunk_.ends[static_cast<std::size_t>(row)] : begin + 1;
      use(row, begin, end);
      begin = end;
    }
  }

  void add_bad(std::int64_t row, const std::string& found) {
    bad_.push_back({to_.name(), "expected " + described(to_) + ", found " + found, row});
  }

  void mismatch(std::int64_t row, const std::string& found) {
    add_bad(row, found);
    made_.add_nulls(1);  // a placeholder: the caller removes the row
  }

  bool missing(std::int64_t row) {
    if (is_valid(row)) return false;
    if (to_.nullable) {
      made_.add_nulls(1);
    } else {
      mismatch(row, kFoundNull);
    }
    return true;
  }

  /// Converts all rows at once if both columns have the same layout and all rows have values that
  /// fit. Otherwise returns false.
  bool convert_all() {
    const bool alike = from_.ragged == to_.ragged && from_.shape == to_.shape;
    if (!alike || !chunk_.valid.empty()) return false;
    const std::size_t count = chunk_.values.size() / itemsize(from_.dtype);
    const std::byte* elements = chunk_.values.data();
    const auto all = static_cast<std::int64_t>(count);
    if (first_not_fitting(from_.dtype, elements, to_.dtype, all) < all) return false;
    cast_elements(from_.dtype, elements, to_.dtype,
                  made_.values.extend(count * itemsize(to_.dtype)), count);
    made_.ends.assign(chunk_.ends.begin(), chunk_.ends.end());
    return true;
  }

  void numbers(std::int64_t row, std::int64_t begin, std::int64_t end) {
    if (missing(row)) return;
    Shape found = from_.shape;
    if (from_.ragged) found.insert(found.begin(), end - begin);
    const bool fits = to_.ragged ? !found.empty() && std::equal(found.begin() + 1, found.end(),
                                                                to_.shape.begin(), to_.shape.end())
                                 : found == to_.shape;
    if (!fits) {
      mismatch(row, from_.dtype_name() + base::list_text(found));
      return;
    }
    const std::int64_t count = numel_of(found);
    const auto first = static_cast<std::size_t>(begin * numel_of(from_.shape));
    const std::byte* elements = chunk_.values.data() + first * itemsize(from_.dtype);
    const std::int64_t mismatch_at = first_not_fitting(from_.dtype, elements, to_.dtype, count);
    if (mismatch_at < count) {
      const std::byte* at =
          elements + static_cast<std::size_t>(mismatch_at) * itemsize(from_.dtype);
      mismatch(row, can_cast(from_.dtype, DType::float64) ? number_text(from_.dtype, at)
                                                          : from_.dtype_name());
      return;
    }
    cast_elements(from_.dtype, elements, to_.dtype,
                  made_.values.extend(static_cast<std::size_t>(count) * itemsize(to_.dtype)),
                  static_cast<std::size_t>(count));
    if (to_.ragged) made_.ends.push_back((made_.ends.empty() ? 0 : made_.ends.back()) + found[0]);
    ++made_.num_rows;
  }

  void texts() {
    made_.values.append(chunk_.values);
    made_.ends.assign(chunk_.ends.begin(), chunk_.ends.end());
    made_.item_ends.assign(chunk_.item_ends.begin(), chunk_.item_ends.end());
    if (to_.nullable) return;
    for (std::int64_t row = 0; row < chunk_.num_rows; ++row) {
      if (!is_valid(row)) add_bad(row, kFoundNull);
    }
  }

  const Column& from_;
  const ColumnChunk& chunk_;
  const Column& to_;
  std::vector<BadValue>& bad_;
  ColumnBuilder made_;
};

}  // namespace

ColumnBuilder fit_chunk(const Column& from, const ColumnChunk& chunk, const Column& to,
                        std::vector<BadValue>& bad) {
  return ChunkConverter(from, chunk, to, bad).run();
}

ColumnBuilder without_rows(const Column& column, const ColumnChunk& chunk,
                           std::span<const std::int64_t> dropped) {
  ColumnBuilder made;
  const std::size_t element_bytes =
      column.is_text() ? 1
                       : static_cast<std::size_t>(numel_of(column.shape)) * itemsize(column.dtype);
  const bool has_items = column.is_text() && column.ragged;
  const auto copy = [&](std::int64_t begin, std::int64_t end, std::size_t size) {
    made.values.append(chunk.values.subspan(static_cast<std::size_t>(begin) * size,
                                            static_cast<std::size_t>(end - begin) * size));
  };
  std::int64_t begin = 0;
  auto next = dropped.begin();
  for (std::int64_t row = 0; row < chunk.num_rows; ++row) {
    const std::int64_t end =
        column.has_ends() ? chunk.ends[static_cast<std::size_t>(row)] : begin + 1;
    const bool drop = next != dropped.end() && *next == row;
    if (drop) ++next;
    if (!drop) {
      if (has_items) {
        for (std::int64_t i = begin; i < end; ++i) {
          const auto at = static_cast<std::size_t>(i);
          copy(at == 0 ? 0 : chunk.item_ends[at - 1], chunk.item_ends[at], 1);
          made.end_item();
        }
      } else {
        copy(begin, end, element_bytes);
      }
      if (column.has_ends()) {
        made.ends.push_back((made.ends.empty() ? 0 : made.ends.back()) + end - begin);
      }
      if (!chunk.valid.empty()) made.valid.push_back(chunk.valid[static_cast<std::size_t>(row)]);
      ++made.num_rows;
    }
    begin = end;
  }
  return made;
}

}  // namespace tenfold

#include "ingest/table/fit_chunk.hpp"

#include <algorithm>
#include <utility>

#include "base/text.hpp"
#include "core/tensor/cast.hpp"
#include "ingest/table/convert_chunk.hpp"

namespace tenfold {

bool has_same_storage(const Column& from, const Column& to) {
  return from.kind == to.kind && from.dtype == to.dtype && from.shape == to.shape &&
         from.ragged == to.ragged;
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

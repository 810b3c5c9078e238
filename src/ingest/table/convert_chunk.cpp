#include "ingest/table/convert_chunk.hpp"

#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/tensor/cast.hpp"
#include "dataset/row_bytes.hpp"

namespace tenfold {

void Origins::begin(std::int64_t count, Kind kind) {
  if (kept_) return;
  kept_ = true;
  resize(count);
  constexpr std::uint8_t kEvery = 0b01010101;
  std::fill(bits_.begin(), bits_.end(),
            static_cast<std::uint8_t>(kEvery * static_cast<std::uint8_t>(kind)));
}

void Origins::push(Kind kind) {
  has_nulls_ |= kind == Kind::null;
  resize(size_ + 1);
  const auto at = static_cast<std::size_t>(size_ - 1);
  const auto shift = static_cast<unsigned>(at % 4 * 2);
  auto& bits = bits_[at / 4];
  bits =
      static_cast<std::uint8_t>((bits & ~(3u << shift)) | (static_cast<unsigned>(kind) << shift));
}

void Origins::push_same(std::int64_t count) {
  for (; count > 0 && size_ % 4 != 0; --count) push(Kind::same);
  resize(size_ + count);
}

void Origins::resize(std::int64_t count) {
  size_ = count;
  bits_.resize(static_cast<std::size_t>((count + 3) / 4));
}

void Origins::become(Kind kind) {
  // Replace each pair of bits that is 00 by `kind`.
  for (std::uint8_t& bits : bits_) {
    const auto other = static_cast<unsigned>((bits | bits >> 1) & 0b01010101);
    const unsigned same = ~other & 0b01010101;
    bits = static_cast<std::uint8_t>(bits | same * static_cast<unsigned>(kind));
  }
}

Origins::Kind Origins::at(std::int64_t element) const noexcept {
  if (element < 0 || element >= size_) return Kind::same;
  const auto at = static_cast<std::size_t>(element);
  return static_cast<Kind>(bits_[at / 4] >> (at % 4 * 2) & 3);
}

namespace {

template <class T>
T read(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

}  // namespace

Value number_value(DType dtype, const std::byte* element, Origins::Kind origin) {
  if (origin == Origins::Kind::null) return Value();
  if (dtype == DType::bool_) return read<std::uint8_t>(element) != 0;
  if (dtype == DType::uint64) {
    const auto number = read<std::uint64_t>(element);
    if (origin == Origins::Kind::boolean) return number != 0;
    if (number >> 63 == 0) return static_cast<std::int64_t>(number);
    return Value::BigInt{std::to_string(number)};
  }
  if (is_integer(dtype)) {
    std::int64_t number = 0;
    cast_elements(dtype, element, DType::int64, reinterpret_cast<std::byte*>(&number), 1);
    if (origin == Origins::Kind::boolean) return number != 0;
    return number;
  }
  double number = 0;
  cast_elements(dtype, element, DType::float64, reinterpret_cast<std::byte*>(&number), 1);
  if (origin == Origins::Kind::boolean) return number != 0;
  if (origin == Origins::Kind::integer) {
    // The float is exact, because only integers that a double can represent are promoted to float.
    // Numbers from 2^63 on were uint64.
    if (number >= 0x1p63) return Value::BigInt{std::to_string(static_cast<std::uint64_t>(number))};
    return static_cast<std::int64_t>(number);
  }
  return number;
}

std::string number_text(DType dtype, const std::byte* element, Origins::Kind origin) {
  return to_json(number_value(dtype, element, origin));
}

namespace {

class Converter {
 public:
  Converter(const Column& from, const ColumnChunk& chunk, const Column& to, const Origins* origins,
            std::int64_t* position)
      : from_(from), chunk_(chunk), to_(to), origins_(origins), position_(position), made_(to) {}

  ColumnBuilder run() {
    if (is_all_null()) {
      all_null();
    } else if (from_.is_text()) {
      from_text();
    } else if (!to_.is_text()) {
      numbers_to_numbers();
    } else if (to_.ragged) {
      lists_to_strings();
    } else if (from_.ragged || !from_.shape.empty()) {
      lists_to_json();
    } else {
      numbers_to_text();
    }
    made_.num_rows = chunk_.num_rows;
    made_.valid.assign(chunk_.valid.begin(), chunk_.valid.end());
    return std::move(made_);
  }

 private:
  [[noreturn]] void refuse() const {
    throw base::invalid_argument()
        .part("column ", base::quote(from_.name()))
        .problem("it cannot be converted from ", from_.dtype_name(), base::list_text(from_.shape),
                 " to ", to_.dtype_name(), base::list_text(to_.shape));
  }

  bool is_valid(std::int64_t row) const {
    return chunk_.valid.empty() || chunk_.valid[static_cast<std::size_t>(row)] != 0;
  }
  bool is_all_null() const {
    return !chunk_.valid.empty() && std::all_of(chunk_.valid.begin(), chunk_.valid.end(),
                                                [](std::uint8_t valid) { return valid == 0; });
  }

  void all_null() {
    const bool is_scalar = !from_.is_text() && !from_.ragged && from_.shape.empty();
    if (is_scalar && position_ != nullptr) *position_ += chunk_.num_rows;
    made_.add_nulls(chunk_.num_rows);
  }

  void from_text() {
    if (from_.kind != to_.kind || (to_.ragged && !from_.ragged)) refuse();
    if (from_.ragged == to_.ragged) {
      made_.values.append(chunk_.values);
      made_.ends.assign(chunk_.ends.begin(), chunk_.ends.end());
      made_.item_ends.assign(chunk_.item_ends.begin(), chunk_.item_ends.end());
      return;
    }
    for_each_row([&](std::int64_t row, std::int64_t begin, std::int64_t end) {
      if (is_valid(row)) {
        append_text("[");
        for (std::int64_t i = begin; i < end; ++i) {
          if (i > begin) append_text(", ");
          const bool is_string = origin() == Origins::Kind::same;
          append_text(is_string ? to_json(Value(std::string(item(i)))) : std::string(item(i)));
        }
        append_text("]");
      }
      made_.end_row();
    });
  }

  std::string_view item(std::int64_t i) const {
    const auto at = static_cast<std::size_t>(i);
    const std::int64_t begin = at == 0 ? 0 : chunk_.item_ends[at - 1];
    return {reinterpret_cast<const char*>(chunk_.values.data()) + begin,
            static_cast<std::size_t>(chunk_.item_ends[at] - begin)};
  }

  /// Calls `use(row, begin, end)` for each row. [begin, end) is the range of the row's elements if
  /// the column is ragged (an element has the shape of the column), otherwise of its numbers.
  template <class Use>
  void for_each_row(const Use& use) const {
    const std::int64_t per_row = numel_of(from_.shape);
    std::int64_t begin = 0;
    for (std::int64_t row = 0; row < chunk_.num_rows; ++row) {
      const std::int64_t end =
          from_.has_ends() ? chunk_.ends[static_cast<std::size_t>(row)] : begin + per_row;
      use(row, begin, end);
      begin = end;
    }
  }

  const std::byte* number(std::int64_t i) const {
    return chunk_.values.data() + static_cast<std::size_t>(i) * itemsize(from_.dtype);
  }
  /// Returns the origin of the next element, and advances the position.
  Origins::Kind origin() const {
    return origins_ == nullptr ? Origins::Kind::same : origins_->at((*position_)++);
  }

  void numbers_to_numbers() {
    if (from_.ragged && !to_.ragged) refuse();
    const bool becomes_ragged = to_.ragged && !from_.ragged;
    if (becomes_ragged && from_.shape.empty()) refuse();
    GrowingBytes cast = cast_values();
    if (!becomes_ragged) {
      made_.ends.assign(chunk_.ends.begin(), chunk_.ends.end());
      made_.values = std::move(cast);
      if (!to_.has_ends()) restore_nulls();
      return;
    }
    // A row without a value has no elements in the result.
    const std::size_t row_bytes =
        static_cast<std::size_t>(numel_of(from_.shape)) * itemsize(to_.dtype);
    std::int64_t end = 0;
    for (std::int64_t row = 0; row < chunk_.num_rows; ++row) {
      if (is_valid(row)) {
        end += from_.shape[0];
        made_.values.append({cast.data() + static_cast<std::size_t>(row) * row_bytes, row_bytes});
      }
      made_.ends.push_back(end);
    }
  }

  GrowingBytes cast_values() const {
    const std::size_t count = chunk_.values.size() / itemsize(from_.dtype);
    GrowingBytes cast;
    cast.resize(count * itemsize(to_.dtype));
    const std::vector<std::int64_t> nulls = null_items();
    if (nulls.empty()) {
      cast_elements(from_.dtype, chunk_.values.data(), to_.dtype, cast.data(), count);
      return cast;
    }
    // NaN represents null in floats. It is replaced by 0 for the cast, because integers have no
    // such value.
    GrowingBytes values;
    values.append(chunk_.values);
    const std::size_t size = itemsize(from_.dtype);
    for (const std::int64_t i : nulls) {
      std::memset(values.data() + static_cast<std::size_t>(i) * size, 0, size);
    }
    cast_elements(from_.dtype, values.data(), to_.dtype, cast.data(), count);
    for (const std::int64_t i : nulls) {
      fill_null(to_.dtype, cast.data() + static_cast<std::size_t>(i) * itemsize(to_.dtype), 1);
    }
    return cast;
  }

  /// Indices of the numbers that are nulls in lists.
  std::vector<std::int64_t> null_items() const {
    std::vector<std::int64_t> nulls;
    const bool is_list = from_.ragged || !from_.shape.empty();
    if (!is_list || origins_ == nullptr || !origins_->has_nulls()) return nulls;
    const std::int64_t each = from_.ragged ? numel_of(from_.shape) : 1;
    for_each_row([&](std::int64_t row, std::int64_t begin, std::int64_t end) {
      if (!is_valid(row)) return;
      for (std::int64_t i = begin * each; i < end * each; ++i) {
        if (origin() == Origins::Kind::null) nulls.push_back(i);
      }
    });
    return nulls;
  }

  void restore_nulls() {
    if (chunk_.valid.empty()) return;
    const std::int64_t per_row = numel_of(to_.shape);
    for (std::int64_t row = 0; row < chunk_.num_rows; ++row) {
      if (is_valid(row)) continue;
      fill_null(to_.dtype,
                made_.values.data() + static_cast<std::size_t>(row * per_row) * itemsize(to_.dtype),
                per_row);
    }
  }

  void append_text(std::string_view text) { made_.values.append(text); }

  void numbers_to_text() {
    if (to_.kind != ColumnKind::string) refuse();
    for (std::int64_t row = 0; row < chunk_.num_rows; ++row) {
      const Origins::Kind kind = origin();
      if (is_valid(row)) append_text(number_text(from_.dtype, number(row), kind));
      made_.end_row();
    }
  }

  void lists_to_strings() {
    const bool one_dimension = from_.ragged ? from_.shape.empty() : from_.shape.size() == 1;
    if (to_.kind != ColumnKind::string || !one_dimension) refuse();
    for_each_row([&](std::int64_t row, std::int64_t begin, std::int64_t end) {
      if (is_valid(row)) {
        for (std::int64_t i = begin; i < end; ++i) {
          append_text(number_text(from_.dtype, number(i), origin()));
          made_.end_item();
        }
      }
      made_.end_row();
    });
  }

  /// The elements from `first` as nested lists of the given lengths.
  Value nested(std::int64_t first, std::span<const std::int64_t> lengths) const {
    if (lengths.empty()) return number_value(from_.dtype, number(first), origin());
    Value::List list;
    const auto inner = lengths.subspan(1);
    std::int64_t step = 1;
    for (const std::int64_t length : inner) step *= length;
    for (std::int64_t i = 0; i < lengths[0]; ++i) {
      list.items.push_back(nested(first + i * step, inner));
    }
    return list;
  }

  void lists_to_json() {
    if (to_.kind != ColumnKind::string) refuse();
    Shape lengths = from_.shape;
    if (from_.ragged) lengths.insert(lengths.begin(), 0);
    const std::int64_t per_element = from_.ragged ? numel_of(from_.shape) : 1;
    for_each_row([&](std::int64_t row, std::int64_t begin, std::int64_t end) {
      if (is_valid(row)) {
        if (from_.ragged) lengths[0] = end - begin;
        append_text(to_json(nested(begin * per_element, lengths)));
      }
      made_.end_row();
    });
  }

  const Column& from_;
  const ColumnChunk& chunk_;
  const Column& to_;
  const Origins* origins_;
  std::int64_t* position_;
  ColumnBuilder made_;
};

}  // namespace

ColumnBuilder convert_chunk(const Column& from, const ColumnChunk& chunk, const Column& to,
                            const Origins* origins, std::int64_t* position) {
  return Converter(from, chunk, to, origins, position).run();
}

}  // namespace tenfold

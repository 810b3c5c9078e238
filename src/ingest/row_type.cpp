#include "ingest/row_type.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/text.hpp"
#include "ingest/row_fault.hpp"

namespace tenfold {

using namespace scalar_kind;

namespace {

/// The kinds of a tensor's elements, by dtype only; 0 for dtypes that are not promoted.
ScalarKinds kinds_of_dtype(DType dtype) {
  switch (dtype) {
    case DType::bool_:
      return kBool;
    case DType::int64:
      return kInteger;
    case DType::uint64:
      return kInteger | kBig;
    case DType::float64:
      return kFloat;
    default:
      return 0;
  }
}

}  // namespace

RowType RowType::of_kinds(ScalarKinds kinds) {
  RowType type;
  type.kinds = static_cast<ScalarKinds>(kinds & ~kNull);
  const auto holder = growing_type_of(type.kinds);
  if (!holder) return type;
  type.form = RowForm::scalar;
  type.has_elements = true;
  type.kind = holder->kind;
  type.dtype = holder->dtype;
  return type;
}

RowType RowType::scalar(DType dtype) {
  RowType type;
  type.form = RowForm::scalar;
  type.has_elements = true;
  type.dtype = dtype;
  type.kinds = kinds_of_dtype(dtype);
  return type;
}

RowType RowType::text(ColumnKind kind) {
  RowType type = scalar(DType::uint8);
  type.kind = kind;
  if (kind == ColumnKind::string) type.kinds = kString;
  return type;
}

RowType RowType::of(const HugeInteger&) { return of_kinds(kInteger | kHuge | kInexact); }

RowType RowType::of(const RowTime& time) {
  RowType type = scalar(DType::int64);
  type.kinds = 0;
  type.unit = time.unit;
  type.clock = time.clock;
  return type;
}

RowType RowType::of(const Tensor& array, bool is_rows) {
  const Shape& shape = array.shape();
  RowType type = type_of_numbers(array.dtype(), array.raw_data(), array.numel());
  if (shape.size() == (is_rows ? 1U : 0U)) return type;
  type.form = RowForm::list;
  type.inner.assign(shape.begin() + (is_rows ? 2 : 1), shape.end());
  if (numel_of(type.inner) == 0 && !(is_rows && shape[0] == 0)) {
    throw BadValue{"", "expected an array whose elements are not empty, found one of shape " +
                           base::list_text(shape)};
  }
  return type;
}

RowType RowType::list() {
  RowType type;
  type.form = RowForm::list;
  return type;
}

RowType RowType::json() {
  RowType type = text(ColumnKind::string);
  type.form = RowForm::json;
  return type;
}

std::string RowType::text() const {
  if (form == RowForm::none) return "null";
  if (form == RowForm::json) return "a list as JSON text";
  if (!has_elements) return has_null ? "a list of null" : "an empty list";
  std::string name(kind == ColumnKind::number   ? tenfold::to_string(dtype)
                   : kind == ColumnKind::string ? "string"
                                                : "bytes");
  if (!inner.empty()) name += base::list_text(inner);
  if (!unit.empty()) name += (clock == Clock::utc ? " (UTC, " : " (") + unit + ")";
  return form == RowForm::list ? "a list of " + name : name;
}

bool RowType::takes_nulls() const noexcept {
  if (form == RowForm::json || !has_elements) return true;
  return is_number() && is_floating_point(dtype);
}

RowType type_of_numbers(DType dtype, const std::byte* elements, std::int64_t count) {
  RowType type = RowType::scalar(dtype);
  if (dtype != DType::int64 && dtype != DType::uint64) return type;
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint64_t value = 0;
    std::memcpy(&value, elements + i * 8, 8);
    type.kinds |=
        dtype == DType::uint64 ? kinds_of(value) : kinds_of(static_cast<std::int64_t>(value));
  }
  return type;
}

namespace {

/// Joins the element types. Returns false if no type holds both.
bool join_elements(const RowType& a, const RowType& b, RowType& joined) {
  const RowType& known = a.has_elements ? a : b;
  joined.kind = known.kind;
  joined.dtype = known.dtype;
  joined.unit = known.unit;
  joined.clock = known.clock;
  joined.kinds = known.kinds;
  if (!a.has_elements || !b.has_elements) return true;
  if (a.unit != b.unit || (!a.unit.empty() && a.clock != b.clock)) return false;
  if (a.kinds == 0 || b.kinds == 0) {
    return a.kinds == b.kinds && a.kind == b.kind && a.dtype == b.dtype;
  }
  joined.kinds = static_cast<ScalarKinds>(a.kinds | b.kinds);
  const auto type = growing_type_of(joined.kinds);
  joined.kind = type->kind;
  joined.dtype = type->dtype;
  return true;
}

/// True if the elements can be written as JSON.
bool has_json(const RowType& type) {
  if (!type.has_elements) return true;
  return type.kind != ColumnKind::bytes && type.unit.empty() && !is_complex(type.dtype) &&
         type.dtype != DType::float4_e2m1fn_x2;
}

std::optional<RowType> json_of(const RowType& a, const RowType& b) {
  if (!has_json(a) || !has_json(b)) return std::nullopt;
  return RowType::json();
}

}  // namespace

std::optional<RowType> join(const RowType& a, const RowType& b) {
  if (a.form == RowForm::none) return b;
  if (b.form == RowForm::none) return a;
  if (a.form == RowForm::json || b.form == RowForm::json) {
    if (a.form == RowForm::scalar || b.form == RowForm::scalar) return std::nullopt;
    return json_of(a, b);
  }
  if (a.form != b.form) return std::nullopt;
  RowType joined;
  joined.form = a.form;
  joined.has_elements = a.has_elements || b.has_elements;
  joined.has_null = a.has_null || b.has_null;
  if (!join_elements(a, b, joined)) return std::nullopt;
  if (a.has_items() && b.has_items() && a.inner != b.inner) return json_of(a, b);
  joined.inner = a.has_items() ? a.inner : b.inner;
  if (!joined.inner.empty() && !joined.is_number()) return json_of(a, b);  // strings have no shape
  return joined;
}

RowType settled(const RowType& type) {
  const auto final_type = type_of(type.kinds);
  if (!type.has_elements || !final_type || final_type->kind == type.kind) return type;
  if (!type.inner.empty()) return RowType::json();
  RowType made = type;
  made.kind = final_type->kind;
  made.dtype = final_type->dtype;
  return made;
}

std::optional<Promotion> promotion_of(std::string column, const std::string& first,
                                      const RowType& type) {
  const std::string to = type.text();
  if (type.is_number() && type.dtype != DType::bool_ && (type.kinds & kBool) != 0) {
    RowType bools = type;
    bools.dtype = DType::bool_;
    return Promotion{std::move(column), bools.text(), to};
  }
  const bool is_wider = !first.empty() && first != to;
  if (!is_wider && type.form != RowForm::json) return std::nullopt;
  return Promotion{std::move(column), is_wider ? first : "a list", to};
}

Column column_of(const RowType& type, std::int64_t length) {
  Column column;
  column.dtype = DType::float64;
  if (type.form == RowForm::none) return column;
  column.ragged = type.form == RowForm::list;
  if (column.ragged) column.shape = type.inner;
  if (type.has_elements) {
    column.kind = type.kind;
    column.dtype = type.dtype;
    column.unit = type.unit;
  }
  if (column.ragged && !column.is_text() && length > 0) {
    column.ragged = false;
    column.shape.insert(column.shape.begin(), length);
  }
  return column;
}

void ListTypes::add_list(std::size_t depth, std::int64_t length) {
  if (depth >= levels_.size()) levels_.resize(depth + 1);
  levels_[depth].least = std::min(levels_[depth].least, length);
  levels_[depth].most = std::max(levels_[depth].most, length);
}

bool ListTypes::add_item(std::size_t depth, RowType item, std::int64_t length) {
  Shape lengths;
  if (item.form == RowForm::list) {
    lengths = std::exchange(item.inner, {});
    lengths.insert(lengths.begin(), length);
    item.form = RowForm::scalar;
  }
  const bool is_null = item.form == RowForm::none;
  const auto joined = join(item_type(), item);
  add_items(depth + lengths.size(), is_null ? kNull : 0);
  if (!joined) return false;
  kinds_ |= item.kinds;
  if (joined->kinds == 0) others_ = *joined;
  for (const std::int64_t each : lengths) add_list(depth++, each);
  return true;
}

void ListTypes::merge(const ListTypes& later) {
  for (std::size_t depth = 0; depth < later.levels_.size(); ++depth) {
    add_list(depth, later.levels_[depth].least);
    add_list(depth, later.levels_[depth].most);
  }
  if (later.depth_of_items_ != 0) add_items(later.depth_of_items_, later.kinds_);
  is_uneven_ |= later.is_uneven_;
}

RowType ListTypes::type() const {
  if (is_uneven_ || (depth_of_items_ != 0 && levels_.size() > depth_of_items_)) {
    return RowType::json();
  }
  RowType type = item_type();
  type.form = RowForm::list;
  type.has_null = (kinds_ & kNull) != 0;
  for (std::size_t depth = 1; depth < levels_.size(); ++depth) {
    const auto [least, most] = levels_[depth];
    if (least != most || most == 0 || !type.is_number()) return RowType::json();
    type.inner.push_back(most);
  }
  return type;
}

std::int64_t ListTypes::length() const noexcept {
  return !levels_.empty() && levels_[0].least == levels_[0].most ? levels_[0].most : 0;
}

}  // namespace tenfold

#include "ingest/rows/type.hpp"

#include <cstring>
#include <utility>

#include "base/text.hpp"

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

RowType RowType::integer(std::int64_t value) {
  RowType type = scalar(DType::int64);
  type.kinds = kinds_of(value);
  return type;
}

RowType RowType::integer(std::uint64_t value) {
  RowType type = scalar(DType::uint64);
  type.kinds = kinds_of(value);
  return type;
}

RowType RowType::huge_integer() {
  RowType type = text(ColumnKind::string);
  type.kinds = kInteger | kHuge | kInexact;
  return type;
}

RowType RowType::time(std::string unit, Clock clock) {
  RowType type = scalar(DType::int64);
  type.kinds = 0;
  type.unit = std::move(unit);
  type.clock = clock;
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
  if (!is_number()) return false;
  return dtype == DType::float64 || dtype == DType::float32 || dtype == DType::float16 ||
         dtype == DType::bfloat16;
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

}  // namespace tenfold

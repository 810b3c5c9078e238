#include "ingest/row_type.hpp"

#include <cstring>
#include <utility>

#include "base/text.hpp"

namespace tenfold {

RowType RowType::scalar(DType dtype) {
  RowType type;
  type.form = RowForm::scalar;
  type.has_elements = true;
  type.dtype = dtype;
  return type;
}

RowType RowType::text(ColumnKind kind) {
  RowType type = scalar(DType::uint8);
  type.kind = kind;
  return type;
}

RowType RowType::integer(std::int64_t value) {
  RowType type = scalar(DType::int64);
  type.is_negative = value < 0;
  type.is_inexact = !is_exact(value);
  return type;
}

RowType RowType::integer(std::uint64_t value) {
  RowType type = scalar(DType::uint64);
  const auto rounded = static_cast<double>(value);
  type.is_inexact = rounded >= 0x1p64 || static_cast<std::uint64_t>(rounded) != value;
  return type;
}

RowType RowType::time(std::string unit, Clock clock) {
  RowType type = scalar(DType::int64);
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
  if (!has_elements) return "an empty list";
  std::string name(kind == ColumnKind::number   ? tenfold::name(dtype)
                   : kind == ColumnKind::string ? "string"
                                                : "bytes");
  if (!inner.empty()) name += base::list_text(inner);
  if (!unit.empty()) name += (clock == Clock::utc ? " (UTC, " : " (") + unit + ")";
  return form == RowForm::list ? "a list of " + name : name;
}

RowType type_of_numbers(DType dtype, const std::byte* elements, std::int64_t count) {
  RowType type = RowType::scalar(dtype);
  if (dtype != DType::int64 && dtype != DType::uint64) return type;
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t value = 0;
    std::memcpy(&value, elements + i * 8, 8);
    const bool is_large = dtype == DType::uint64 && value < 0;
    const RowType one = is_large ? RowType::integer(static_cast<std::uint64_t>(value)) : RowType();
    type.is_negative |= dtype == DType::int64 && value < 0;
    type.is_inexact |= is_large ? one.is_inexact : !is_exact(value);
  }
  return type;
}

namespace {

/// The rank of Python's types of numbers, by which they are promoted; nothing for other dtypes.
std::optional<int> rank(DType dtype) {
  switch (dtype) {
    case DType::bool_:
      return 0;
    case DType::int64:
      return 1;
    case DType::uint64:
      return 2;
    case DType::float64:
      return 3;
    default:
      return std::nullopt;
  }
}

/// Joins what the elements are; false if nothing holds both.
bool join_elements(const RowType& a, const RowType& b, RowType& joined) {
  if (!a.has_elements || !b.has_elements) {
    const RowType& known = a.has_elements ? a : b;
    joined.kind = known.kind;
    joined.dtype = known.dtype;
    joined.unit = known.unit;
    joined.clock = known.clock;
    return true;
  }
  if (a.unit != b.unit || (!a.unit.empty() && a.clock != b.clock)) return false;
  joined.unit = a.unit;
  joined.clock = a.clock;
  joined.kind = a.kind;
  joined.dtype = a.dtype;
  if (a.kind == b.kind && a.dtype == b.dtype) return true;
  if (a.kind == ColumnKind::bytes || b.kind == ColumnKind::bytes) return false;
  const auto become_text = [&] {
    joined.kind = ColumnKind::string;
    joined.dtype = DType::uint8;
    return true;
  };
  const auto first = rank(a.dtype);
  const auto second = rank(b.dtype);
  if ((a.is_number() && !first) || (b.is_number() && !second)) return false;
  if (!a.is_number() || !b.is_number()) return become_text();
  joined.dtype = *first > *second ? a.dtype : b.dtype;
  if (joined.dtype == DType::uint64 && joined.is_negative) return become_text();
  if (joined.dtype == DType::float64 && joined.is_inexact) return become_text();
  return true;
}

/// JSON has a word for the elements.
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
  RowType joined;
  joined.has_elements = a.has_elements || b.has_elements;
  joined.is_negative = a.is_negative || b.is_negative;
  joined.is_inexact = a.is_inexact || b.is_inexact;
  joined.has_null = a.has_null || b.has_null;
  if (a.form == RowForm::none || b.form == RowForm::none) {
    joined = a.form == RowForm::none ? b : a;
  } else if (a.form == RowForm::json || b.form == RowForm::json) {
    if (a.form == RowForm::scalar || b.form == RowForm::scalar) return std::nullopt;
    return json_of(a, b);
  } else if (a.form != b.form) {
    return std::nullopt;
  } else {
    joined.form = a.form;
    if (!join_elements(a, b, joined)) return std::nullopt;
    if (a.has_elements && b.has_elements && a.inner != b.inner) return json_of(a, b);
    joined.inner = a.has_elements ? a.inner : b.inner;
    if (!joined.inner.empty() && !joined.is_number()) return json_of(a, b);  // text has no shape
  }
  if (!joined.has_null) return joined;
  if (!joined.has_elements) {
    joined.has_elements = true;
    joined.dtype = DType::float64;
  }
  const DType dtype = joined.dtype;
  const bool is_float = dtype == DType::float64 || dtype == DType::float32 ||
                        dtype == DType::float16 || dtype == DType::bfloat16;
  if (!joined.is_number() || !is_float) return std::nullopt;
  return joined;
}

}  // namespace tenfold

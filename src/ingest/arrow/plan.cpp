#include "ingest/arrow/plan.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "dataset/leaf_names.hpp"

namespace tenfold {
namespace {

bool is_number(const ArrowType& type) {
  const ArrowKind kind = type.values().kind;
  return kind == ArrowKind::number || kind == ArrowKind::boolean || kind == ArrowKind::null;
}

bool is_text(const ArrowType& type) {
  const ArrowKind kind = type.values().kind;
  return kind == ArrowKind::text || kind == ArrowKind::text_view ||
         kind == ArrowKind::fixed_bytes || kind == ArrowKind::decimal;
}

void set_numbers(Column& column, const ArrowType& type) {
  column.dtype = type.values().kind == ArrowKind::null ? DType::float64 : type.values().dtype;
  column.unit = type.values().unit;
}

void set_texts(Column& column, const ArrowType& type) {
  column.kind = type.values().is_binary ? ColumnKind::bytes : ColumnKind::string;
  column.dtype = DType::uint8;
}

void set_json(ArrowColumn& made) {
  made.column.kind = ColumnKind::string;
  made.column.dtype = DType::uint8;
  made.column.shape.clear();
  made.column.ragged = false;
  made.column.unit.clear();
  made.is_json = true;
}

/// Returns the shape of a type of nested fixed-size lists of numbers, or [] for a type of numbers,
/// and sets `numbers` to the type of the numbers. Returns nullopt for other types.
std::optional<Shape> fixed_shape(const ArrowType& type, const ArrowType*& numbers) {
  Shape shape;
  const ArrowType* inner = &type;
  while (inner->kind == ArrowKind::fixed_list) {
    shape.push_back(inner->width);
    inner = inner->children.data();
  }
  if (!is_number(*inner)) return std::nullopt;
  numbers = inner;
  return shape;
}

/// The innermost type of nested lists of numbers; null for other types.
const ArrowType* nested_numbers(const ArrowType& type) {
  const ArrowType* inner = &type;
  while (inner->is_list() && !inner->dictionary) inner = inner->children.data();
  return is_number(*inner) ? inner : nullptr;
}

/// Nesting depth of lists.
std::size_t depth_of(const ArrowType& type) {
  return type.is_list() ? 1 + depth_of(type.children[0]) : 0;
}

void set_column(const ArrowType& type, ArrowColumn& made) {
  Column& column = made.column;
  const ArrowType& values = type.values();
  const ArrowType* numbers = nullptr;
  if (is_number(values)) {
    set_numbers(column, values);
    column.nullable = values.kind == ArrowKind::null;
  } else if (is_text(values)) {
    set_texts(column, values);
  } else if (!type.dictionary && type.is_list() && is_text(type.children[0])) {
    set_texts(column, type.children[0]);
    column.ragged = true;
  } else if (const auto shape =
                 !type.dictionary && type.is_list()
                     ? fixed_shape(type.kind == ArrowKind::fixed_list ? type : type.children[0],
                                   numbers)
                     : std::nullopt) {
    set_numbers(column, *numbers);
    column.shape = *shape;
    column.ragged = type.kind != ArrowKind::fixed_list;
  } else if (const ArrowType* nested = type.is_list() ? nested_numbers(type) : nullptr) {
    set_numbers(column, *nested);
    column.ragged = true;
    made.is_nested = true;
    made.depth = depth_of(type.children[0]);
  } else {
    set_json(made);
  }
}

/// Throws if a struct in `type` has two fields with the same name, because JSON readers return only
/// one of them.
void check_names(const ArrowType& type, const base::Where& where) {
  std::set<std::string_view> names;
  // The names of a map's keys and values are not stored.
  const ArrowType& record = type.kind == ArrowKind::map ? type.children[0] : type;
  for (const ArrowType& child : record.children) {
    if (type.kind == ArrowKind::record && !names.insert(child.name).second) {
      throw base::unsupported(where)
          .problem("structs in lists, maps or dictionaries are stored as JSON")
          .expected("distinct names of their fields")
          .found(base::quote(child.name), " twice")
          .remedy("rename one of the fields");
    }
    check_names(child, where);
  }
  if (type.dictionary) check_names(*type.dictionary, where);
}

void add_columns(const ArrowType& record, const std::string& where, ArrowColumn& at,
                 std::vector<ArrowColumn>& columns) {
  for (std::size_t i = 0; i < record.children.size(); ++i) {
    const ArrowType& field = record.children[i];
    at.fields.push_back(i);
    at.column.path.push_back(field.name);
    if (field.kind == ArrowKind::record && field.dictionary == nullptr) {
      add_columns(field, where, at, columns);
    } else {
      ArrowColumn made = at;
      set_column(field, made);
      if (made.is_json) {
        check_names(field,
                    base::Where(where, "schema").at("column " + base::quote(made.column.name())));
      }
      Column& column = made.column;
      if (column.unit.empty() && !column.is_text()) column.unit = field.field_unit;
      name_leaves(column);
      columns.push_back(std::move(made));
    }
    at.fields.pop_back();
    at.column.path.pop_back();
  }
}

}  // namespace

std::vector<ArrowColumn> arrow_columns(const ArrowType& batch, const std::string& where) {
  if (batch.kind != ArrowKind::record || batch.dictionary) {
    throw base::unsupported(where)
        .part("schema")
        .expected("record batches")
        .found("arrays of the Arrow format ", base::quote(batch.format))
        .remedy("put the array into a table of one column");
  }
  std::vector<ArrowColumn> columns;
  ArrowColumn at;
  add_columns(batch, where, at, columns);
  return columns;
}

void adapt_to(ArrowColumn& column, const Column& target) {
  const Column& source = column.column;
  const bool is_list = source.ragged || !source.shape.empty();
  if (is_list && !source.is_text() && target.kind == ColumnKind::string && !target.ragged) {
    set_json(column);
    return;
  }
  if (!column.is_nested || target.is_text()) return;
  const std::size_t outer = target.ragged ? 0 : 1;
  if (target.shape.size() != outer + column.depth) return;
  column.column.shape.assign(target.shape.begin() + static_cast<std::ptrdiff_t>(outer),
                             target.shape.end());
  column.has_shape = column.is_shape_given = true;
}

bool have_shape(const ArrowSlice& lists, std::size_t depth, Shape& shape) {
  if (!lists.type->is_list()) return true;
  for (std::int64_t i = 0; i < lists.size; ++i) {
    if (!lists.is_valid(i)) return false;
    const auto [begin, end] = lists.range_at(i);
    if (shape[depth] < 0) shape[depth] = end - begin;
    if (end == begin || end - begin != shape[depth]) return false;
    if (!have_shape(lists.items(begin, end - begin), depth + 1, shape)) return false;
  }
  return true;
}

bool settle_shape(ArrowColumn& column, const ArrowSlice& batch) {
  if (!column.is_nested || column.is_json || column.is_shape_given) return false;
  ArrowSlice rows = batch;
  std::vector<ArrowSlice> enclosing;
  for (const std::size_t field : column.fields) {
    enclosing.push_back(rows);
    rows = rows.field(field);
  }
  // The list of a null struct need not be null.
  const auto is_valid = [&](std::int64_t row) {
    return rows.is_valid(row) &&
           std::ranges::all_of(enclosing, [&](const auto& record) { return record.is_valid(row); });
  };
  const bool had_shape = column.has_shape;
  Shape shape = column.column.shape;
  if (!had_shape) shape.assign(column.depth, -1);
  for (std::int64_t row = 0; row < rows.size; ++row) {
    if (!is_valid(row)) continue;
    const auto [begin, end] = rows.range_at(row);
    if (!have_shape(rows.items(begin, end - begin), 0, shape)) {
      set_json(column);
      name_leaves(column.column);
      return true;
    }
  }
  if (had_shape || shape[0] < 0) return false;
  column.has_shape = true;
  column.column.shape = std::move(shape);
  return true;
}

}  // namespace tenfold

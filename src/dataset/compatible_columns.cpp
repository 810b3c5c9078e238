#include "dataset/compatible_columns.hpp"

#include "base/text.hpp"

namespace tenfold {

bool are_compatible(const Column& a, const Column& b) {
  return a.path == b.path && a.kind == b.kind && a.dtype == b.dtype && a.shape == b.shape &&
         a.ragged == b.ragged && a.nullable == b.nullable && a.unit == b.unit;
}

std::string describe(const Column& column) {
  std::string text(column.dtype_name());
  if (!column.is_text()) text += " " + base::list_text(column.shape);
  if (column.ragged) text += ", ragged";
  if (column.nullable) text += ", nullable";
  if (!column.unit.empty()) text += ", unit " + base::quote(column.unit);
  return text;
}

}  // namespace tenfold

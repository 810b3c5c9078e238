// Ingest of whole columns.

#include "base/text.hpp"
#include "row_record.hpp"

namespace tenfold::python {

/// The entry of a column that is passed as a whole; creates the entry if the column is new. Null if
/// the column is not requested, or is not in the schema.
RowReader::Entry* RowReader::column_at(const nb::tuple& keys) {
  Record* record = root_.get();
  Entry* entry = nullptr;
  for (const nb::handle key : keys) {
    if (entry != nullptr) {
      if (entry->column != nullptr) {
        throw BadValue{dotted(entry->path),
                       "expected " + entry->column->text() + ", found an object"};
      }
      record = &entry->members();
    }
    entry = find(*record, key.ptr());
    if (entry == nullptr) {
      entry = &record->add(key);
      entry->is_ignored = is_ignored(entry->path);
    }
    entry->was_seen = true;
    if (entry->is_ignored) return nullptr;
  }
  if (entry->column == nullptr && !entry->record) entry->column = &table_.add_column(entry->path);
  return entry;
}

void RowReader::add_columns(nb::dict columns, std::int64_t begin, std::int64_t end) {
  for (const auto& [name, values] : columns) {
    Entry* entry = column_at(nb::cast<nb::tuple>(name));
    if (entry == nullptr) continue;
    if (entry->column == nullptr) {
      throw BadValue{dotted(entry->path), "expected a record of columns, found one column"};
    }
    try {
      add_column(table_.begin_value(*entry->column), values, begin, end);
    } catch (BadValue& bad) {
      if (bad.column.empty()) bad.column = dotted(entry->path);
      throw;
    }
  }
  if (end > begin) refuse_missing();
  table_.end_rows(end - begin);
}

/// Adds the rows [begin, end) of a list, or all rows of an array, which the caller has sliced.
void RowReader::add_column(RowColumn& column, nb::handle values, std::int64_t begin,
                           std::int64_t end) {
  if (const auto tensor = array_from(values)) {
    if (tensor->ndim() == 0 || tensor->shape()[0] != end - begin) {
      throw BadValue{"", "expected " + std::to_string(end - begin) + " rows, found shape " +
                             base::list_text(tensor->shape())};
    }
    const std::int64_t rows = column.num_rows();
    const bool is_known = column.type().form != RowForm::none;
    if (is_known && column.add_rows(*tensor)) return;
    if (column.is_fixed_by_schema()) {
      const std::int64_t row = column.num_rows() - rows;
      // Index with an int object: a C++ integer would call PySequence_GetItem(), which tensors do
      // not support.
      mismatch(column, nb::object(values[nb::int_(row)]), begin + row);
    }
    column.truncate(rows);
    const auto joined = column.with(RowType::of(*tensor, true));
    if (!joined) mismatch(column, values);
    table_.promote(column, *joined);
    if (tensor->ndim() > 1) column.expect_length(tensor->shape()[1]);
    if (!column.add_rows(*tensor)) mismatch(column, values);
    return;
  }
  for (std::int64_t i = begin; i < end; ++i) {
    const nb::object value = nb::steal(PySequence_GetItem(values.ptr(), i));
    if (!value.is_valid()) throw nb::python_error();
    const std::int64_t rows = column.num_rows();
    try {
      if (add_scalar(column, value.ptr())) continue;
      if (column.is_fixed_by_schema()) mismatch(column, value);
      column.truncate(rows);
      if (PyDict_Check(value.ptr())) throw RowsNeeded();
      table_.promote(column, widened(&column, value));
      if (!add_scalar(column, value.ptr())) mismatch(column, value);
    } catch (BadValue& bad) {
      bad.row = i;
      throw;
    }
  }
}

}  // namespace tenfold::python

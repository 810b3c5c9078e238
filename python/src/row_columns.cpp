// Ingest of whole columns.

#include "base/text.hpp"
#include "dataset/leaf_names.hpp"
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

/// Moves the validity of columns from `columns` to the returned dict, which has the paths of these
/// columns as keys. A value with the key "<column>.valid" is the validity of <column> if it is an
/// array [rows] of bools, <column> is in `columns` too, and the schema has no column with that key.
/// All other values are data.
nb::dict RowReader::take_validity(nb::dict& columns) const {
  nb::dict data;
  nb::dict validity;
  for (const auto& [name, values] : columns) {
    nb::list keys = nb::steal<nb::list>(PySequence_List(name.ptr()));
    const std::size_t last = keys.size() - 1;
    const std::string key = utf8(keys[last]);
    bool is_validity = key.ends_with(kValiditySuffix);
    if (is_validity) {
      const std::optional<Tensor> array = array_from(values);
      is_validity = array && array->ndim() == 1 && array->dtype() == DType::bool_ &&
                    !names_.contains(nb::str(".").attr("join")(keys));
      keys[last] = text(key.substr(0, key.size() - kValiditySuffix.size()));
    }
    const nb::tuple column(keys);
    (is_validity && columns.contains(column) ? validity[column] : data[name]) = values;
  }
  columns = data;
  return validity;
}

void RowReader::add_columns(nb::dict columns, std::int64_t begin, std::int64_t end) {
  const nb::dict validity = take_validity(columns);
  for (const auto& [name, values] : columns) {
    Entry* entry = column_at(nb::cast<nb::tuple>(name));
    if (entry == nullptr) continue;
    if (entry->column == nullptr) {
      throw BadValue{dotted(entry->path), "expected a record of columns, found one column"};
    }
    try {
      RowColumn& column = table_.begin_value(*entry->column);
      if (!validity.contains(name)) {
        add_column(column, values, begin, end);
      } else {
        add_valid_rows(column, values, array_from(validity[name]).value(), begin, end);
      }
    } catch (BadValue& bad) {
      if (bad.column.empty()) bad.column = dotted(entry->path);
      throw;
    }
  }
  if (end > begin) refuse_missing();
  table_.end_rows(end - begin);
}

/// As add_column(), with null in the rows where `valid`, bools [end - begin], is false.
void RowReader::add_valid_rows(RowColumn& column, nb::handle values, const Tensor& valid,
                               std::int64_t begin, std::int64_t end) {
  const std::byte* const flags = valid.raw_data();
  std::int64_t next = begin;
  for (std::int64_t row = begin; row < end; row = next) {
    const std::byte flag = flags[row - begin];
    while (next < end && flags[next - begin] == flag) ++next;
    if (flag != std::byte{0}) {
      const nb::slice rows(row - begin, next - begin);
      add_column(column, is_sequence(values.ptr()) ? nb::borrow(values) : nb::object(values[rows]),
                 row, next);
    } else if (column.add(nullptr)) {
      column.add_nulls(next - row - 1);
    } else {
      mismatch(column, nb::none(), row);
    }
  }
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

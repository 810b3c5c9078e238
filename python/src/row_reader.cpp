#include "row_reader.hpp"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include <tenfold/error.hpp>

#include "base/text.hpp"
#include "ingest/fit_chunk.hpp"
#include "row_values.hpp"

namespace tenfold::python {

/// A key of a record, and what lies there: a column, a record, or nothing that is wanted.
struct RowReader::Entry {
  nb::object key;
  KeyPath path;
  RowColumn* column = nullptr;
  std::unique_ptr<Record> record;
  bool is_ignored = false;
  bool was_seen = false;
};

/// The keys of dicts at one place.
struct RowReader::Record {
  KeyPath path;
  std::vector<std::unique_ptr<Entry>> entries;
  nb::dict index;  ///< key -> number of its entry

  Entry& add(nb::handle key) {
    entries.push_back(std::make_unique<Entry>());
    Entry& made = *entries.back();
    made.key = nb::borrow(key);
    made.path = path;
    made.path.push_back(utf8(key));
    index[key] = entries.size() - 1;
    return made;
  }
};

RowReader::RowReader(RowTable& table, bool has_schema, std::vector<std::string> columns)
    : table_(table),
      has_schema_(has_schema),
      columns_(std::move(columns)),
      root_(std::make_unique<Record>()) {
  if (has_schema) make_schema_entries();
}

RowReader::~RowReader() = default;

void RowReader::make_schema_entries() {
  for (std::size_t i = 0; i < table_.num_columns(); ++i) {
    RowColumn& column = table_.column(i);
    Record* record = root_.get();
    for (std::size_t depth = 0; depth < column.path().size(); ++depth) {
      const nb::str key = text(column.path()[depth]);
      Entry* entry = find(*record, key.ptr());
      if (entry == nullptr) entry = &record->add(key);
      if (depth + 1 == column.path().size()) {
        entry->column = &column;
      } else {
        if (!entry->record) {
          entry->record = std::make_unique<Record>();
          entry->record->path = entry->path;
        }
        record = entry->record.get();
      }
    }
  }
}

RowReader::Entry* RowReader::find(Record& record, PyObject* key) {
  PyObject* found = PyDict_GetItemWithError(record.index.ptr(), key);
  if (found != nullptr) return record.entries[PyLong_AsSize_t(found)].get();
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  return nullptr;
}

bool RowReader::is_wanted(const std::string& name) const {
  if (columns_.empty()) return true;
  return std::any_of(columns_.begin(), columns_.end(), [&](const std::string& wanted) {
    return wanted == name || name.starts_with(wanted + ".") || wanted.starts_with(name + ".");
  });
}

// --- the short way ---

void RowReader::add(nb::handle row) {
  nb::object dict = nb::borrow(row);
  if (!PyDict_Check(dict.ptr())) {
    dict = nb::module_::import_("tenfold.dataset._ingest_values").attr("row_of")(row);
    if (!PyDict_Check(dict.ptr())) {
      throw BadRow{"", std::string("expected a dict, found ") + Py_TYPE(row.ptr())->tp_name};
    }
  }
  try {
    if (!add_record(*root_, dict.ptr()) || !add_missing()) {
      table_.undo_row();
      widen(*root_, dict.ptr(), false);
      widen(*root_, dict.ptr(), true);
      if (!add_record(*root_, dict.ptr())) misfit_in(*root_, dict.ptr());
      if (!add_missing()) refuse_missing();
    }
  } catch (...) {
    table_.undo_row();
    throw;
  }
  table_.end_row();
}

bool RowReader::add_record(Record& record, PyObject* dict) {
  Py_ssize_t position = 0;
  PyObject* key = nullptr;
  PyObject* value = nullptr;
  std::size_t next = 0;
  const std::size_t count = record.entries.size();
  while (PyDict_Next(dict, &position, &key, &value) != 0) {
    Entry* entry = next < count ? record.entries[next].get() : nullptr;
    ++next;
    if (entry == nullptr || entry->key.ptr() != key) {
      if (!PyUnicode_Check(key)) return false;
      entry = find(record, key);
      if (entry == nullptr) return false;
    }
    if (!add_value(*entry, value)) return false;
    entry->was_seen = true;
  }
  return true;
}

bool RowReader::add_value(Entry& entry, PyObject* value) {
  if (entry.is_ignored) return true;
  if (entry.record) {
    if (value == Py_None) return true;
    if (PyDict_Check(value)) return add_record(*entry.record, value);
    const nb::object dict = simple_mapping(value);
    return dict.is_valid() && add_record(*entry.record, dict.ptr());
  }
  if (entry.column == nullptr) return false;
  try {
    return add_scalar(*entry.column, value);
  } catch (BadRow& bad) {
    if (bad.column.empty()) bad.column = dotted(entry.path);
    throw;
  }
}

bool RowReader::add_scalar(RowColumn& column, PyObject* value) {
  if (PyFloat_Check(value)) return column.add_float(PyFloat_AS_DOUBLE(value));
  if (PyUnicode_Check(value)) {
    return column.add_text(ColumnKind::string, Utf8(value).view());
  }
  if (value == Py_None) return column.add_null();
  if (PyBool_Check(value)) return column.add_bool(value == Py_True);
  if (PyLong_Check(value)) {
    const Integer number = integer_of(value);
    if (number.size == Integer::Size::int64) return column.add_int(number.value);
    if (number.size == Integer::Size::uint64) return column.add_uint(number.large);
    return column.add_text(ColumnKind::string, utf8(nb::str(nb::handle(value))));
  }
  if (PyList_Check(value) || PyTuple_Check(value)) return add_list(column, value);
  if (PyBytes_Check(value)) {
    return column.add_text(ColumnKind::bytes,
                           {PyBytes_AS_STRING(value), static_cast<std::size_t>(Py_SIZE(value))});
  }
  if (PyByteArray_Check(value)) {
    return column.add_text(ColumnKind::bytes, {PyByteArray_AS_STRING(value),
                                               static_cast<std::size_t>(Py_SIZE(value))});
  }
  if (PyDict_Check(value)) return false;
  // Code of Python's runs from here on, and might drop it.
  const nb::object kept = nb::borrow(value);
  if (const auto tensor = array_from(value)) {
    return column.add_array(tensor->dtype(), tensor->shape(), tensor->raw_data());
  }
  const nb::object simple = simple_value(value);
  return add_scalar(column, simple.ptr());
}

bool RowReader::add_list(RowColumn& column, PyObject* list) {
  if (column.is_list()) return put_items(column, list, 0) && column.end_list();
  const bool wants_json = column.is_json() || column.is_fixed_by_schema();
  return wants_json && column.add_json(json_of(list));
}

bool RowReader::put_items(RowColumn& column, PyObject* list, std::size_t depth) {
  const Shape& inner = column.type().inner;
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(list);
  if (depth > 0 && count != inner[depth - 1]) return false;
  for (Py_ssize_t i = 0; i < count && i < PySequence_Fast_GET_SIZE(list); ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(list, i);
    if (depth == inner.size()) {
      if (PyFloat_Check(item)) {
        if (!column.put_float(PyFloat_AS_DOUBLE(item))) return false;
      } else if (!put_item(column, item)) {
        return false;
      }
    } else if (PyList_Check(item) || PyTuple_Check(item)) {
      if (!put_items(column, item, depth + 1)) return false;
    } else {
      const auto tensor = depth == 0 ? array_from(item) : std::nullopt;
      if (!tensor || !column.put_array(tensor->dtype(), tensor->shape(), tensor->raw_data())) {
        return false;
      }
    }
  }
  return true;
}

bool RowReader::put_item(RowColumn& column, PyObject* item) {
  if (PyBool_Check(item)) return column.put_bool(item == Py_True);
  if (PyLong_Check(item)) {
    const Integer number = integer_of(item);
    if (number.size == Integer::Size::int64) return column.put_int(number.value);
    if (number.size == Integer::Size::uint64) return column.put_uint(number.large);
    return column.put_text(ColumnKind::string, utf8(nb::str(nb::handle(item))));
  }
  if (PyUnicode_Check(item)) return column.put_text(ColumnKind::string, Utf8(item).view());
  if (item == Py_None) return column.put_null();
  if (PyBytes_Check(item)) {
    return column.put_text(ColumnKind::bytes,
                           {PyBytes_AS_STRING(item), static_cast<std::size_t>(Py_SIZE(item))});
  }
  if (PyDict_Check(item) || PyList_Check(item) || PyTuple_Check(item)) return false;
  const nb::object kept = nb::borrow(item);
  if (const auto tensor = array_from(kept)) {
    if (tensor->ndim() > 0) return false;
    return column.put_array(tensor->dtype(), {}, tensor->raw_data()) ||
           column.put_number(tensor->dtype(), tensor->raw_data());
  }
  return put_item(column, simple_value(kept).ptr());
}

/// Columns that the row did not have get a null.
bool RowReader::add_missing() {
  const std::int64_t rows = table_.block_rows();
  for (std::size_t i = 0; i < table_.num_columns(); ++i) {
    RowColumn& column = table_.column(i);
    if (column.num_rows() == rows && !column.add_null()) return false;
  }
  return true;
}

// --- the long way ---

nb::object RowReader::simple_mapping(PyObject* value) {
  const bool is_plain = value == Py_None || PyFloat_Check(value) || PyLong_Check(value) ||
                        PyUnicode_Check(value) || PyBytes_Check(value) || PyList_Check(value) ||
                        PyTuple_Check(value);
  if (is_plain || array_from(value)) return {};
  nb::object made =
      nb::module_::import_("tenfold.dataset._ingest_values").attr("row_of")(nb::handle(value));
  return PyDict_Check(made.ptr()) ? made : nb::object();
}

void RowReader::widen(Record& record, PyObject* dict, bool apply) {
  Py_ssize_t position = 0;
  PyObject* key = nullptr;
  PyObject* value = nullptr;
  // What Python code of a value's does to the dict must not be seen here.
  std::vector<std::pair<nb::object, nb::object>> members;
  while (PyDict_Next(dict, &position, &key, &value) != 0) {
    members.emplace_back(nb::borrow(key), nb::borrow(value));
  }
  for (const auto& [name, member] : members) {
    if (!PyUnicode_Check(name.ptr())) {
      throw BadRow{dotted(record.path), "expected keys of str, found " + found_text(name)};
    }
    Utf8 checked(name.ptr());
    Entry* entry = find(record, name.ptr());
    if (entry == nullptr && apply) {
      entry = &record.add(name);
      entry->is_ignored = has_schema_ || !is_wanted(dotted(entry->path));
    }
    KeyPath path = record.path;
    path.push_back(utf8(name));
    const bool ignored =
        entry != nullptr ? entry->is_ignored : has_schema_ || !is_wanted(dotted(path));
    if (ignored) continue;
    try {
      widen_value(path, entry, member.ptr(), apply);
    } catch (BadRow& bad) {
      if (bad.column.empty()) bad.column = dotted(path);
      throw;
    }
  }
}

/// `entry` is null while a key that is new is only looked at.
void RowReader::widen_value(const KeyPath& path, Entry* entry, PyObject* value, bool apply) {
  nb::object dict = PyDict_Check(value) ? nb::borrow(value) : simple_mapping(value);
  RowColumn* column = entry == nullptr ? nullptr : entry->column;
  if (dict.is_valid()) {
    if (column != nullptr && column->type().form != RowForm::none) misfit(*column, value);
    Record empty;
    empty.path = path;
    if (apply && !entry->record) {
      if (column != nullptr) table_.remove_column(*column);
      entry->column = nullptr;
      entry->record = std::make_unique<Record>();
      entry->record->path = path;
    }
    const bool exists = entry != nullptr && entry->record != nullptr;
    widen(exists ? *entry->record : empty, dict.ptr(), apply);
    return;
  }
  if (entry != nullptr && entry->record) {
    if (value == Py_None) return;
    throw BadRow{"", "expected an object, found " + found_text(value)};
  }
  if (column != nullptr && column->is_fixed_by_schema()) return;
  const RowType type = row_type_of(value);
  const RowType before = column == nullptr ? RowType() : column->type();
  const auto joined = join(before, type);
  if (!joined) {
    throw BadRow{"", "expected " + before.text() + ", found " + found_text(value)};
  }
  if (!apply) return;
  if (column == nullptr) entry->column = column = &table_.add_column(path);
  table_.promote(*column, *joined);
}

void RowReader::misfit(const RowColumn& column, PyObject* value) const {
  throw BadRow{dotted(column.path()),
               "expected " + described_type(column) + ", found " + found_text(value)};
}

void RowReader::throw_bad_value(const RowColumn& column, nb::handle value, std::int64_t row) const {
  throw BadRow{dotted(column.path()),
               "expected " + described_type(column) + ", found " + found_text(value), row};
}

std::string RowReader::described_type(const RowColumn& column) {
  return column.is_fixed_by_schema() ? described(column.wanted()) : column.type().text();
}

/// Says which value of a row that was looked at does not fit: one of a column of the schema.
void RowReader::misfit_in(Record& record, PyObject* dict) {
  table_.undo_row();
  for (const auto& [key, value] : nb::borrow<nb::dict>(dict)) {
    Entry* entry = find(record, key.ptr());
    if (entry == nullptr || entry->is_ignored) continue;
    if (entry->record && PyDict_Check(value.ptr())) {
      misfit_in(*entry->record, value.ptr());
    } else if (entry->column != nullptr && !add_scalar(*entry->column, value.ptr())) {
      const bool is_null = value.is_none();
      throw BadRow{dotted(entry->path),
                   "expected " + described_type(*entry->column) + ", found " + found_text(value) +
                       (is_null ? "; a column that may miss values is nullable" : "")};
    } else if (entry->record && !value.is_none()) {
      throw BadRow{dotted(entry->path), "expected an object, found " + found_text(value)};
    }
  }
  if (&record == root_.get()) throw BadRow{"", "expected a row, found one that changes"};
}

void RowReader::refuse_missing() {
  const std::int64_t rows = table_.block_rows();
  for (std::size_t i = 0; i < table_.num_columns(); ++i) {
    RowColumn& column = table_.column(i);
    if (column.num_rows() != rows || column.add_null()) continue;
    throw BadRow{dotted(column.path()),
                 "expected " + described_type(column) +
                     ", found no such key; a column that may miss values is nullable"};
  }
}

// --- columns ---

void RowReader::add_columns(nb::dict columns, std::int64_t begin, std::int64_t end) {
  const auto locate = [&](nb::handle name) -> Entry* {
    Entry* entry = find(*root_, name.ptr());
    if (entry == nullptr) {
      entry = &root_->add(name);
      entry->is_ignored = has_schema_ || !is_wanted(dotted(entry->path));
      if (!entry->is_ignored) entry->column = &table_.add_column(entry->path);
    }
    entry->was_seen = true;
    return entry->is_ignored ? nullptr : entry;
  };
  for (const auto& [name, values] : columns) {
    Entry* entry = locate(name);
    if (entry == nullptr) continue;
    if (entry->column == nullptr) {
      throw BadRow{dotted(entry->path), "expected an object, found a column"};
    }
    try {
      add_column(*entry->column, values, begin, end);
    } catch (BadRow& bad) {
      if (bad.column.empty()) bad.column = dotted(entry->path);
      throw;
    }
  }
  if (!add_missing_rows(end - begin)) refuse_missing();
  table_.end_rows(end - begin);
}

bool RowReader::add_missing_rows(std::int64_t count) {
  const std::int64_t rows = table_.block_rows();
  for (std::size_t i = 0; i < table_.num_columns(); ++i) {
    RowColumn& column = table_.column(i);
    if (column.num_rows() != rows) continue;
    for (std::int64_t k = 0; k < count; ++k) {
      if (!column.add_null()) return false;
    }
  }
  return true;
}

/// The rows [begin, end) of a list, or all of an array, which is already cut.
void RowReader::add_column(RowColumn& column, nb::handle values, std::int64_t begin,
                           std::int64_t end) {
  const auto widened = [&](const RowType& type, nb::handle value) {
    const auto joined = column.with(type);
    if (!joined) misfit(column, value.ptr());
    table_.promote(column, *joined);
  };
  if (const auto tensor = array_from(values)) {
    if (tensor->ndim() == 0 || tensor->shape()[0] != end - begin) {
      throw BadRow{"", "expected " + std::to_string(end - begin) + " rows, found shape " +
                           base::list_text(tensor->shape())};
    }
    const std::int64_t rows = column.num_rows();
    if (column.add_arrays(tensor->dtype(), tensor->shape(), tensor->raw_data())) return;
    column.truncate(rows);
    RowType type = type_of_numbers(tensor->dtype(), tensor->raw_data(), tensor->numel());
    if (tensor->ndim() > 1) {
      type.form = RowForm::list;
      type.inner.assign(tensor->shape().begin() + 2, tensor->shape().end());
      if (tensor->numel() == 0 && end > begin && numel_of(type.inner) == 0) {
        throw BadRow{"", "expected rows whose elements are not empty, found shape " +
                             base::list_text(tensor->shape())};
      }
    }
    widened(type, values);
    if (!column.add_arrays(tensor->dtype(), tensor->shape(), tensor->raw_data())) {
      misfit(column, values.ptr());
    }
    return;
  }
  for (std::int64_t i = begin; i < end; ++i) {
    const nb::object value = nb::steal(PySequence_GetItem(values.ptr(), i));
    if (!value.is_valid()) throw nb::python_error();
    const std::int64_t rows = column.num_rows();
    if (add_scalar(column, value.ptr())) continue;
    column.truncate(rows);
    if (PyDict_Check(value.ptr())) throw RowsNeeded();
    if (column.is_fixed_by_schema()) throw_bad_value(column, value, i);
    const auto joined = column.with(row_type_of(value));
    if (!joined) throw_bad_value(column, value, i);
    table_.promote(column, *joined);
    if (!add_scalar(column, value.ptr())) throw_bad_value(column, value, i);
  }
}

// --- what was not there ---

void RowReader::check_all_seen(const std::string& where) const {
  std::vector<std::string> seen;
  const auto visit = [&](const auto& self, const Record& record) -> void {
    for (const auto& entry : record.entries) {
      const std::string name = dotted(entry->path);
      if (entry->was_seen) seen.push_back(name);
      if (entry->record) self(self, *entry->record);
      if (!has_schema_ || entry->column == nullptr || entry->was_seen) continue;
      throw Error(ErrorCode::invalid_argument,
                  where + ": column " + base::quote(name) +
                      ": the schema names it: expected it in the source, found it in no row");
    }
  };
  visit(visit, *root_);
  for (const std::string& wanted : columns_) {
    if (std::find(seen.begin(), seen.end(), wanted) != seen.end()) continue;
    throw Error(ErrorCode::key_not_found, where + ": no column " + base::quote(wanted));
  }
}

std::vector<std::string> RowReader::ignored() const {
  std::vector<std::string> names;
  const auto visit = [&](const auto& self, const Record& record) -> void {
    for (const auto& entry : record.entries) {
      if (entry->is_ignored) names.push_back(dotted(entry->path));
      if (entry->record) self(self, *entry->record);
    }
  };
  if (has_schema_) visit(visit, *root_);
  return names;
}

}  // namespace tenfold::python

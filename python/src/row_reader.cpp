#include "row_reader.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "common.hpp"
#include "dataset/leaf_names.hpp"
#include "ingest/source_report.hpp"
#include "python_objects.hpp"
#include "row_record.hpp"

namespace tenfold::python {

RowReader::RowReader(RowTable& table, bool has_schema, std::vector<std::string> columns,
                     bool takes_decimals)
    : table_(table),
      has_schema_(has_schema),
      takes_decimals_(takes_decimals),
      columns_(std::move(columns)),
      root_(std::make_unique<Record>()) {
  if (has_schema) make_schema_entries();
}

RowReader::RowReader(RowTable& table) : RowReader(table, true, {}, false) {
  refuses_others_ = true;
  for (std::size_t i = 0; i < table.num_columns(); ++i) {
    RowColumn& column = table.column(i);
    const nb::str name = text(dotted(column.path()));
    if (find(*root_, name.ptr()) == nullptr) root_->add(name).column = &column;
  }
}

RowReader::~RowReader() = default;

void RowReader::make_schema_entries() {
  for (std::size_t i = 0; i < table_.num_columns(); ++i) {
    RowColumn& column = table_.column(i);
    names_.add(text(dotted(column.path())));
    Record* record = root_.get();
    Entry* entry = nullptr;
    for (const std::string& part : column.path()) {
      if (entry != nullptr) record = &entry->members();
      const nb::str key = text(part);
      entry = find(*record, key.ptr());
      if (entry == nullptr) entry = &record->add(key);
    }
    entry->column = &column;
  }
}

RowReader::Entry* RowReader::find(Record& record, PyObject* key) {
  PyObject* found = PyDict_GetItemWithError(record.index.ptr(), key);
  if (found != nullptr) return record.entries[PyLong_AsSize_t(found)].get();
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  return nullptr;
}

bool RowReader::is_ignored(const KeyPath& path) const {
  if (has_schema_ || columns_.empty()) return has_schema_;
  const std::string record = dotted(path) + ".";
  return position_of(path, columns_) == columns_.size() &&
         std::ranges::none_of(
             columns_, [&](const std::string& wanted) { return wanted.starts_with(record); });
}

// --- fast path ---

void RowReader::add(nb::handle row) {
  nb::object dict = nb::borrow(row);
  if (!PyDict_Check(dict.ptr())) {
    dict = nb::module_::import_("tenfold.dataset._ingest.values").attr("row_of")(row);
    if (!PyDict_Check(dict.ptr())) {
      throw BadValue{"", "expected a dict, found " + std::string(type_name(row.ptr()))};
    }
  }
  try {
    if (!add_dict(dict.ptr())) {
      table_.undo_row();
      widen(*root_, dict.ptr(), false);
      widen(*root_, dict.ptr(), true);
      if (!add_record(*root_, dict.ptr(), true)) {
        throw BadValue{
            "", "expected a row that stays the same while it is read, found one that changes"};
      }
      refuse_missing();
    }
  } catch (...) {
    table_.undo_row();
    throw;
  }
  table_.end_row();
}

/// Returns false if a column needs another type, or the row has a new key or lacks a required
/// column.
bool RowReader::add_dict(PyObject* dict) {
  return add_record(*root_, dict) && table_.missing_column() == nullptr;
}

bool RowReader::add_record(Record& record, PyObject* dict, bool is_widened) {
  Py_ssize_t position = 0;
  PyObject* key = nullptr;
  PyObject* value = nullptr;
  std::size_t next = 0;
  const std::size_t count = record.entries.size();
  while (PyDict_Next(dict, &position, &key, &value) != 0) {
    // Keep references: adding a value may run Python code that changes the dict.
    const nb::object kept_key = nb::borrow(key);
    const nb::object kept_value = nb::borrow(value);
    Mark mark = Mark::none;
    if (has_validity_ && PyUnicode_Check(key)) mark = mark_of(record, dict, kept_key);
    if (mark == Mark::is_validity) continue;
    if (mark == Mark::missing) value = Py_None;
    Entry* entry = next < count ? record.entries[next].get() : nullptr;
    ++next;
    if (entry == nullptr || entry->key.ptr() != key) {
      if (!PyUnicode_Check(key)) return false;
      entry = find(record, key);
      if (entry == nullptr) return false;
    }
    if (!add_value(*entry, value, is_widened)) return false;
    if (mark == Mark::valid && refuses_others_ && entry->column != nullptr) {
      entry->column->mark_valid();
    }
    entry->was_seen = true;
  }
  return true;
}

bool RowReader::add_value(Entry& entry, PyObject* value, bool is_widened) {
  if (entry.is_ignored) return true;
  if (entry.record) {
    if (value == Py_None) {
      // If rows may lack columns, all rows must have the columns of the first row, so None for a
      // record adds a null to each of its columns.
      return !table_.takes_some() ||
             std::ranges::all_of(entry.record->entries, [&](const auto& member) {
               return add_value(*member, value, is_widened);
             });
    }
    if (PyDict_Check(value)) return add_record(*entry.record, value, is_widened);
    const nb::object dict = simple_mapping(value);
    return dict.is_valid() && add_record(*entry.record, dict.ptr(), is_widened);
  }
  if (entry.column == nullptr) return false;
  if (entry.column->num_rows() > table_.block_rows()) {
    throw BadValue{dotted(entry.column->path()), "expected one value, found two"};
  }
  RowColumn& column = table_.begin_value(*entry.column);
  try {
    if (add_scalar(column, value)) return true;
    if (is_widened) mismatch(column, value);
    return false;
  } catch (BadValue& bad) {
    if (bad.column.empty()) bad.column = dotted(entry.path);
    throw;
  }
}

/// The caller keeps a reference to `value`, because Python code may run.
bool RowReader::add_scalar(RowColumn& column, PyObject* value) {
  const auto added = visit_value(value, [&](const auto& known) { return column.add(known); });
  if (added) return *added;
  if (is_sequence(value)) return add_list(column, value);
  return !PyDict_Check(value) && add_scalar(column, simple(column, value).ptr());
}

/// Calls simple_value() until the result is an array or of a built-in type. Throws for a Decimal if
/// the reader does not store Decimals as strings.
nb::object RowReader::simple(const RowColumn& column, nb::handle value) const {
  nb::object plain = nb::borrow(value);
  // Two arrays of objects may contain each other.
  for (std::size_t i = 0; i < kMaxListDepth; ++i) {
    if (!takes_decimals_ && is_decimal(plain)) {
      const std::string expected = column.is_fixed_by_schema() ? column.text() : "a number or str";
      throw BadValue{"", "expected " + expected + ", found " + found_text(plain) + kDecimalRemedy};
    }
    plain = simple_value(plain);
    if (!is_convertible(plain) || array_from(plain)) return plain;
  }
  throw BadValue{"", "expected at most 64 nested arrays, found more"};
}

bool RowReader::add_list(RowColumn& column, PyObject* list) {
  if (column.is_list()) {
    const auto length = static_cast<std::int64_t>(sequence_size(list));
    return put_items(column, list, 0) && column.end_list(length);
  }
  return column.takes_json() && column.add_json(json_of(list));
}

bool RowReader::put_items(RowColumn& column, PyObject* list, std::size_t depth) {
  const Shape& inner = column.type().inner;
  const std::size_t count = sequence_size(list);
  if (depth > 0 && static_cast<std::int64_t>(count) != inner[depth - 1]) return false;
  for (std::size_t i = 0; i < count && i < sequence_size(list); ++i) {
    PyObject* item = sequence_item(list, i);
    if (depth == inner.size()) {
      if (PyFloat_CheckExact(item)) {
        if (!column.put(float_value(item))) return false;
      } else if (!put_item(column, item)) {
        return false;
      }
    } else if (is_sequence(item)) {
      const nb::object kept = nb::borrow(item);  // Python code may drop the last reference
      if (!put_items(column, item, depth + 1)) return false;
    } else if (!put_part(column, item, depth)) {
      return false;
    }
  }
  return true;
}

/// Adds an array, or an object that can be converted to an array or a list. Returns false for any
/// other object.
bool RowReader::put_part(RowColumn& column, nb::handle item, std::size_t depth) {
  // Keep a reference: Python code runs from here on, and might drop the last one.
  const nb::object kept = nb::borrow(item);
  if (const auto array = array_from(kept)) return column.put_array(*array, depth);
  if (!is_convertible(kept)) return false;
  const nb::object plain = simple(column, kept);
  return is_sequence(plain.ptr()) ? put_items(column, plain.ptr(), depth + 1)
                                  : put_part(column, plain, depth);
}

bool RowReader::put_item(RowColumn& column, PyObject* item) {
  const nb::object kept = nb::borrow(item);  // Python code may drop the last reference
  const auto done = visit_value(kept, [&](const auto& known) { return column.put(known); });
  if (done) return *done;
  return is_convertible(kept) && put_item(column, simple(column, kept).ptr());
}

// --- validity ---

/// Returns the mark of `key` in `dict`. If the reader refuses keys that are not columns, throws
/// BadValue for a validity that is neither a bool nor an int, and for one without the value of its
/// column in the same dict.
RowReader::Mark RowReader::mark_of(Record& record, PyObject* dict, nb::handle key) {
  std::string name = utf8(key);
  if (name.ends_with(kValiditySuffix)) {
    const nb::str column = text(name.substr(0, name.size() - kValiditySuffix.size()));
    const bool has_column = PyDict_Contains(dict, column.ptr()) == 1;
    if (has_column && validity_in(record, dict, key)) return Mark::is_validity;
    const Entry* entry = find(record, column.ptr());
    const bool is_column = entry != nullptr && entry->column != nullptr;
    if (refuses_others_ && is_column && find(record, key.ptr()) == nullptr) {
      const std::string path = dotted(entry->path);
      const std::string validity = path + std::string(kValiditySuffix);
      if (has_column) {
        const nb::object found = nb::borrow(PyDict_GetItemWithError(dict, key.ptr()));
        if (!found.is_valid()) return Mark::none;  // Python code has changed the row
        throw BadValue{validity, "expected a bool, found " + found_text(found)};
      }
      throw BadValue{path, "expected a value, because " + base::quote(validity) +
                               " is given, found none in the same dict; give the validity beside "
                               "the value, and use None for a missing value"};
    }
  }
  const auto validity = validity_in(record, dict, text(name.append(kValiditySuffix)));
  if (!validity) return Mark::none;
  return *validity ? Mark::valid : Mark::missing;
}

/// The value of a key "<column>.valid" as a bool. Empty if there is no such key, or if its value is
/// data. A bool of Python is data if there is no schema. If the reader refuses keys that are not
/// columns, an int is a validity too, and a record has no validity.
std::optional<bool> RowReader::validity_in(Record& record, PyObject* dict, nb::handle key) {
  const nb::object value = nb::borrow(PyDict_GetItemWithError(dict, key.ptr()));
  if (!value.is_valid()) {
    if (PyErr_Occurred() != nullptr) throw nb::python_error();
    return std::nullopt;
  }
  const Entry* entry = find(record, key.ptr());
  if (has_schema_ && entry != nullptr && entry->column != nullptr) return std::nullopt;
  if (refuses_others_) {
    const std::string name = utf8(key);
    entry = find(record, text(name.substr(0, name.size() - kValiditySuffix.size())).ptr());
    if (entry == nullptr || entry->column == nullptr) return std::nullopt;
  }
  const auto array = array_from(value);
  const bool is_validity = array ? array->ndim() == 0 && array->dtype() == DType::bool_
                                 : (refuses_others_ ? PyLong_Check(value.ptr())
                                                    : has_schema_ && PyBool_Check(value.ptr()));
  if (!is_validity) return std::nullopt;
  return PyObject_IsTrue(value.ptr()) == 1;
}

// --- after all rows ---

void RowReader::check_all_seen(const std::string& where) const {
  std::vector<std::string> seen;
  root_->for_each([&](const Entry& entry) {
    const std::string name = dotted(entry.path);
    if (entry.was_seen) seen.push_back(name);
    if (!has_schema_ || entry.column == nullptr || entry.was_seen) return;
    throw base::invalid_argument(where)
        .part("column ", base::quote(name))
        .problem("the schema names it")
        .expected("this key in some row of the source")
        .found("none");
  });
  for (const std::string& wanted : columns_) {
    if (std::find(seen.begin(), seen.end(), wanted) != seen.end()) continue;
    throw base::key_not_found(where).problem("no column ", base::quote(wanted));
  }
}

std::vector<const RowColumn*> RowReader::columns_in_input_order() const {
  std::vector<const RowColumn*> columns;
  root_->for_each([&](const Entry& entry) {
    if (entry.column != nullptr) columns.push_back(entry.column);
  });
  return columns;
}

std::vector<std::string> RowReader::ignored() const {
  std::vector<std::string> names;
  root_->for_each([&](const Entry& entry) {
    if (has_schema_ && entry.is_ignored) names.push_back(dotted(entry.path));
  });
  return names;
}

}  // namespace tenfold::python

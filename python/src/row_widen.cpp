// Rows that do not fit the columns: all values are checked before a column changes.

#include <charconv>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "dataset/leaf_names.hpp"
#include "row_record.hpp"

namespace tenfold::python {
namespace {

/// Numbers with more characters are shortened in messages.
constexpr std::size_t kMaxDigits = 60;

}  // namespace

nb::object RowReader::simple_mapping(PyObject* value) {
  if (!is_convertible(value) || array_from(value)) return {};
  nb::object made =
      nb::module_::import_("tenfold.dataset._ingest.values").attr("row_of")(nb::handle(value));
  return PyDict_Check(made.ptr()) ? made : nb::object();
}

void RowReader::widen(Record& record, PyObject* dict, bool apply) {
  Py_ssize_t position = 0;
  PyObject* key = nullptr;
  PyObject* value = nullptr;
  // A copy, because converting a value may run Python code that changes the dict.
  std::vector<std::pair<nb::object, nb::object>> members;
  while (PyDict_Next(dict, &position, &key, &value) != 0) {
    members.emplace_back(nb::borrow(key), nb::borrow(value));
  }
  for (const auto& [name, member] : members) {
    if (!PyUnicode_Check(name.ptr())) {
      throw BadValue{dotted(record.path), "expected keys of str, found " + found_text(name)};
    }
    const Utf8 checked(name.ptr());
    if (checked.view().ends_with(kValiditySuffix)) has_validity_ = true;
    const Mark mark = mark_of(record, dict, name);
    if (mark == Mark::is_validity) continue;
    Entry* entry = find(record, name.ptr());
    if (entry == nullptr && apply) {
      entry = &record.add(name);
      entry->is_ignored = is_ignored(entry->path);
    }
    KeyPath path = record.path;
    path.push_back(utf8(name));
    if (entry == nullptr && refuses_others_) {
      const nb::object known = nb::module_::import_("builtins").attr("sorted")(names_);
      throw BadValue{dotted(path), "no such column: expected one of " + utf8(nb::repr(known))};
    }
    if (entry != nullptr ? entry->is_ignored : is_ignored(path)) continue;
    try {
      widen_value(path, entry, mark == Mark::missing ? Py_None : member.ptr(), apply);
    } catch (BadValue& bad) {
      if (bad.column.empty()) bad.column = dotted(path);
      throw;
    }
  }
}

/// `entry` is null while a new key is only checked.
void RowReader::widen_value(const KeyPath& path, Entry* entry, PyObject* value, bool apply) {
  nb::object dict = PyDict_Check(value) ? nb::borrow(value) : simple_mapping(value);
  RowColumn* column = entry == nullptr ? nullptr : entry->column;
  if (dict.is_valid()) {
    if (column != nullptr && column->type().form != RowForm::none) mismatch(*column, value);
    Record empty;
    empty.path = path;
    if (apply && column != nullptr) {
      table_.remove_column(*column);
      entry->column = nullptr;
    }
    const bool exists = apply || (entry != nullptr && entry->record != nullptr);
    widen(exists ? entry->members() : empty, dict.ptr(), apply);
    return;
  }
  if (entry != nullptr && entry->record) {
    if (value == Py_None) return;
    throw BadValue{"", "expected an object, found " + found_text(value)};
  }
  if (column != nullptr && column->is_fixed_by_schema()) return;
  const RowType type = widened(column, value);
  if (!apply) {
    // Throws, before any column changes, for a value that JSON cannot represent.
    if (type.form == RowForm::json && is_sequence(value)) json_of(value);
    return;
  }
  if (column == nullptr) entry->column = column = &table_.add_column(path);
  table_.promote(*column, type);
}

RowType RowReader::widened(const RowColumn* column, nb::handle value) const {
  const RowType type = row_type_of(value);
  check_array(column == nullptr ? RowType() : column->type(), type, value);
  const auto joined = table_.joined(column, type);
  if (!joined) refuse(column, type, value);
  return *joined;
}

/// Throws for a value of `type` that cannot be added to the column (null: a new column).
void RowReader::refuse(const RowColumn* column, const RowType& type, nb::handle value) {
  const std::string found = ", found " + found_in(column, value);
  if (column != nullptr && column->type().form != RowForm::none) {
    throw BadValue{"", "expected " + column->type().text() + found};
  }
  if (type.has_null) throw BadValue{"", "expected a list without null" + found};
  const bool is_json = type.form == RowForm::json;
  throw BadValue{"",
                 "expected a number of 64 bits, a string, a list of either, or lists of numbers "
                 "nested in lists, with equal lengths on each level" +
                     found + (is_json ? "; to store it as a string, use json.dumps()" : "")};
}

/// Throws for an array that could share a column with the earlier rows only as JSON text, because
/// arrays are not converted to JSON.
void RowReader::check_array(const RowType& before, const RowType& type, nb::handle value) {
  const auto joined = join(before, type);
  if (!joined || joined->form != RowForm::json) return;
  const auto array = array_from(value);
  if (!array) return;
  const std::string found = base::list_text(array->shape());
  if (before.form == RowForm::json) {
    throw BadValue{"",
                   "expected a list, as in the rows before, which are stored as JSON text, found "
                   "an array of shape " +
                       found + "; convert it with tolist()"};
  }
  std::string expected = "[*";
  for (const std::int64_t length : before.inner) expected += ", " + std::to_string(length);
  throw BadValue{"", "expected an array of shape " + expected +
                         "], as in the rows before, found one of shape " + found +
                         "; rows may differ in their first dimension only: pad them, or store the "
                         "flattened values and the shape as two columns"};
}

/// The indices of the first None in a list if the column (null: a new column) cannot store it.
/// Empty if the column can store it or the list has no None.
std::vector<std::int64_t> RowReader::refused_none(const RowColumn* column, nb::handle value) {
  if (column == nullptr || column->type().form == RowForm::none) {
    return indices_of_none(value, kMaxListDepth);
  }
  if (!column->is_list() || column->takes_null_elements()) return {};
  // Not deeper: `value` may be a list that contains itself.
  return indices_of_none(value, 1 + column->type().inner.size());
}

/// Describes `value` like found_text(), after the indices from refused_none() if there are any.
std::string RowReader::found_in(const RowColumn* column, nb::handle value) {
  const std::string found = found_text(value);
  const std::vector<std::int64_t> indices = refused_none(column, value);
  if (indices.empty()) return found;
  const std::string index =
      indices.size() == 1 ? std::to_string(indices[0]) : base::list_text(indices);
  return "None at index " + index + " of " + found;
}

void RowReader::mismatch(const RowColumn& column, nb::handle value, std::int64_t row) const {
  const std::string& number = column.out_of_range();
  std::string what = "expected " + column.text() + ", found ";
  const bool is_long = number.size() > kMaxDigits;
  if (number.empty() || is_long || column.is_list()) what += found_in(&column, value);
  if (!number.empty() && !is_long) what += (column.is_list() ? " with " : "") + number;
  if (value.is_none()) what += "; a column with missing values must be nullable";
  if (is_decimal(value)) what += kDecimalRemedy;
  const bool is_float = column.type().is_number() && is_floating_point(column.type().dtype);
  if (is_float && column.requires_exact() && !number.empty()) {
    what += ", which is not exact in " + column.text();
    double rounded = 0;
    const auto parsed = std::from_chars(number.data(), number.data() + number.size(), rounded);
    if (parsed.ec == std::errc()) what += "; round it with float()";
  }
  if (is_float && !refused_none(&column, value).empty()) {
    what += "; use NaN for a missing element of a list";
  }
  throw BadValue{dotted(column.path()), what, row};
}

void RowReader::refuse_missing() {
  const RowColumn* column = table_.missing_column();
  if (column == nullptr) return;
  throw BadValue{dotted(column->path()),
                 "expected " + column->text() +
                     (table_.takes_some()
                          ? ", as in the first row, found no such key; use None for a missing value"
                          : ", found no such key; a column with missing values must be nullable")};
}

}  // namespace tenfold::python

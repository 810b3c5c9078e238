#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common.hpp"
#include "ingest/rows/table.hpp"
#include "row_values.hpp"

namespace tenfold::python {

/// Adds Python dicts to the columns of a RowTable. Rows with the same keys and types as earlier
/// rows take a fast path. For any other row, all values are checked before a column changes, so
/// that a bad row changes no column. Requires the GIL.
class RowReader {
 public:
  /// `columns`: names of the columns to read, or of records whose columns are all read; empty: all
  /// columns. `takes_decimals`: whether Decimals are stored as strings or are bad values.
  RowReader(RowTable& table, bool has_schema, std::vector<std::string> columns,
            bool takes_decimals);
  /// For a table from which the caller gets the rows by take_rows(). add() throws BadValue for a
  /// key that names neither a column of the table nor the validity of one. The key of a column in a
  /// record may also be its dotted name.
  explicit RowReader(RowTable& table);
  ~RowReader();
  RowReader(const RowReader&) = delete;
  RowReader& operator=(const RowReader&) = delete;

  /// Adds a row. Throws BadValue for a bad row, and then adds nothing. Python exceptions are passed
  /// on.
  void add(nb::handle row);

  /// Adds the rows [begin, end) of whole columns. `columns`: maps the path of a column, a tuple of
  /// keys, to a list or tuple of all rows, or to an array of only these rows. An array of bools
  /// with the key "<column>.valid" states which rows of that column have a value. Throws BadValue
  /// naming the column, or RowsNeeded if a list contains records. If it throws, some rows may have
  /// been added.
  void add_columns(nb::dict columns, std::int64_t begin, std::int64_t end);

  /// All columns in the order in which they first appeared, with the columns of a record together.
  /// If a record started as a column of nulls, its columns are in the place of that column.
  std::vector<const RowColumn*> columns_in_input_order() const;
  /// Throws Error(invalid_argument) for a column of the schema that occurred in no row. Throws
  /// Error(key_not_found) for a name in `columns` that occurred in no row.
  void check_all_seen(const std::string& where) const;
  /// The keys of rows that are not in the schema; empty without a schema.
  std::vector<std::string> ignored() const;

 private:
  struct Record;
  struct Entry;
  /// What the keys "<column>.valid" of a row state about one of its keys: nothing, that its value
  /// is valid or missing, or that the key is itself such a validity.
  enum class Mark : std::uint8_t { none, valid, missing, is_validity };

  Entry* find(Record& record, PyObject* key);
  /// True for a key that is not in the schema, or not requested.
  bool is_ignored(const KeyPath& path) const;
  void make_schema_entries();

  Mark mark_of(Record& record, PyObject* dict, nb::handle key);
  std::optional<bool> validity_in(Record& record, PyObject* dict, nb::handle key);
  bool add_dict(PyObject* dict);
  bool add_record(Record& record, PyObject* dict, bool is_widened = false);
  bool add_value(Entry& entry, PyObject* value, bool is_widened);
  bool add_list(RowColumn& column, PyObject* list);
  bool put_items(RowColumn& column, PyObject* list, std::size_t depth);
  bool put_part(RowColumn& column, nb::handle item, std::size_t depth);
  bool put_item(RowColumn& column, PyObject* item);
  bool add_scalar(RowColumn& column, PyObject* value);
  nb::object simple(const RowColumn& column, nb::handle value) const;
  Entry* column_at(const nb::tuple& keys);
  nb::dict take_validity(nb::dict& columns) const;
  void add_valid_rows(RowColumn& column, nb::handle values, const Tensor& valid, std::int64_t begin,
                      std::int64_t end);
  void add_column(RowColumn& column, nb::handle values, std::int64_t begin, std::int64_t end);

  /// Converts a mapping to a dict. Empty for an object that is not a mapping.
  static nb::object simple_mapping(PyObject* value);
  void widen(Record& record, PyObject* dict, bool apply);
  void widen_value(const KeyPath& path, Entry* entry, PyObject* value, bool apply);

  /// The type with which the column (null: a new column) can store `value` in addition to its
  /// earlier values. Throws BadValue if there is no such type.
  RowType widened(const RowColumn* column, nb::handle value) const;
  static void check_array(const RowType& before, const RowType& type, nb::handle value);
  [[noreturn]] static void refuse(const RowColumn* column, const RowType& type, nb::handle value);
  static std::vector<std::int64_t> refused_none(const RowColumn* column, nb::handle value);
  static std::string found_in(const RowColumn* column, nb::handle value);
  [[noreturn]] void mismatch(const RowColumn& column, nb::handle value,
                             std::int64_t row = -1) const;
  void refuse_missing();

  RowTable& table_;
  bool has_schema_;
  bool takes_decimals_;
  bool refuses_others_ = false;
  std::vector<std::string> columns_;
  std::unique_ptr<Record> root_;
  nb::set names_;              ///< the schema's columns
  bool has_validity_ = false;  ///< rows have keys that end with ".valid"
};

}  // namespace tenfold::python

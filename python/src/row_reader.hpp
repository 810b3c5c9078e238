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

/// Walks Python's dicts into the columns of a RowTable. Values that every row before had, too, take
/// a short way; any other makes the row be looked at as a whole before a column changes, so that a
/// row that is bad changes none.
///
/// Needs the GIL.
class RowReader {
 public:
  /// `columns`: only these and the records they are in; empty: all.
  RowReader(RowTable& table, bool has_schema, std::vector<std::string> columns);
  ~RowReader();
  RowReader(const RowReader&) = delete;
  RowReader& operator=(const RowReader&) = delete;

  /// Adds a row, or throws BadRow; then there is none. Exceptions of Python pass.
  void add(nb::handle row);

  /// Adds the rows [begin, end) of columns, by the tuples of their keys: lists and tuples, or
  /// arrays of just these rows. Throws BadRow naming the column.
  void add_columns(nb::dict columns, std::int64_t begin, std::int64_t end);

  /// Throws BadRow, with its row, for a null in a list of a column that has turned out to hold
  /// none.
  void check_nulls();
  /// All columns, in the order in which their keys came, those of a record together. A record may
  /// have begun as a column of nulls.
  std::vector<const RowColumn*> columns_as_they_came() const;
  /// Throws Error(invalid_argument) for a column of the schema, Error(key_not_found) for one of
  /// `columns` that no row had.
  void check_all_seen(const std::string& where) const;
  /// Names that the schema does not have.
  std::vector<std::string> ignored() const;

 private:
  struct Record;
  struct Entry;

  Entry* find(Record& record, PyObject* key);
  bool is_wanted(const std::string& name) const;
  void make_schema_entries();

  nb::object with_nulls(const nb::object& dict) const;
  bool add_dict(PyObject* dict);
  bool add_record(Record& record, PyObject* dict);
  bool add_value(Entry& entry, PyObject* value);
  bool add_list(RowColumn& column, PyObject* list);
  bool put_items(RowColumn& column, PyObject* list, std::size_t depth);
  bool put_item(RowColumn& column, PyObject* item);
  bool add_scalar(RowColumn& column, PyObject* value);
  [[noreturn]] void refuse_rows(RowColumn& column, nb::handle values, std::int64_t begin,
                                std::int64_t end);
  Entry* column_at(const nb::tuple& keys);
  void add_column(RowColumn& column, nb::handle values, std::int64_t begin, std::int64_t end);

  /// The dict that a mapping which is none is; nothing for what is no mapping.
  static nb::object simple_mapping(PyObject* value);
  void widen(Record& record, PyObject* dict, bool apply);
  void widen_value(const KeyPath& path, Entry* entry, PyObject* value, bool apply);

  static std::string described_type(const RowColumn& column);
  [[noreturn]] void misfit(const RowColumn& column, PyObject* value) const;
  void misfit_in(Record& record, PyObject* dict);
  void refuse_missing();
  void throw_bad_value(const RowColumn& column, nb::handle value, std::int64_t row) const;

  RowTable& table_;
  bool has_schema_;
  std::vector<std::string> columns_;
  std::unique_ptr<Record> root_;
  nb::object names_;        ///< of the schema's columns, a set; None without a schema
  bool has_flags_ = false;  ///< rows have keys "<column>.valid" that tell of nulls
};

}  // namespace tenfold::python

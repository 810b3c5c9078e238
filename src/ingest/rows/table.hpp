#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/io.hpp>
#include <tenfold/schema.hpp>

#include "ingest/rows/column.hpp"
#include "ingest/source_report.hpp"
#include "ingest/table/table_writer.hpp"

namespace tenfold {

/// Writes row-by-row input as a data set. Infers the columns from the values, and rewrites a column
/// if its type changes.
///
/// The time for a row depends on the number of columns in which it has a value, not on the number
/// of all columns. missing_column() also takes time for each column of a schema that requires a
/// value. Nulls are added to a column when it gets its next value, or when the block is written.
///
/// Thread safety: one thread at a time.
class RowTable {
 public:
  /// Without a path, writes nothing, and finish() reports the resulting schema. `order`: names of
  /// columns or enclosing records, in the order of the result; all other columns follow in the
  /// order in which they first appear. `defers_nulls`, `keeps_kinds`: see RowColumn.
  RowTable(std::optional<Path> path, const std::optional<Schema>& schema,
           std::vector<std::string> order, const TableWriterOptions& options,
           bool defers_nulls = true, bool keeps_kinds = false);
  /// Collects about `num_rows` rows in memory for take_rows(). The columns of `schema` are created
  /// with `keeps_kinds`. `some`: the first row may lack any columns; the other rows must have the
  /// same columns as the first one, and take_rows() returns only these.
  RowTable(const Schema& schema, std::int64_t num_rows, bool keeps_kinds = true, bool some = false);

  bool takes_some() const noexcept { return some_; }
  std::size_t num_columns() const noexcept { return columns_.size(); }
  RowColumn& column(std::size_t index) noexcept { return *columns_[index].column; }
  /// Prepares `column` for the value of the current row (or of several rows), and returns it. The
  /// caller then adds the value. Call once per row and column.
  RowColumn& begin_value(RowColumn& column) {
    const std::int64_t absent = block_rows_ - column.num_rows();
    if (absent != 0) [[unlikely]]
      column.add_nulls(absent);
    column.begin_row();
    value_bytes_ -= static_cast<std::int64_t>(column.num_bytes());
    padded_row_bytes_ -= column.padded_null_bytes();
    touched_.push_back(&column);
    return column;
  }
  /// The first column that requires a value in every row and has none in the current row, or null.
  RowColumn* missing_column() const;
  /// Sets the expected total number of rows. When the first rows are written, the writer checks
  /// that the disk has space for this number of rows.
  void expect_rows(std::int64_t count) noexcept { options_.expected_rows = count; }
  /// Adds a column, with nulls in the rows so far.
  RowColumn& add_column(KeyPath path);
  /// Removes a column that has only nulls.
  void remove_column(const RowColumn& column);
  /// The type that `column` (null: a new column) has after a value of type `value` is added. Empty
  /// if there is no such type.
  std::optional<RowType> joined(const RowColumn* column, const RowType& value) const;
  void promote(RowColumn& column, const RowType& type);
  /// Sets the order of columns. `order` must contain all of them.
  void arrange(const std::vector<const RowColumn*>& order);

  /// Completes the row. Columns that got no value get a null. If the table was created with `some`,
  /// missing_column() must be null; throws BadValue if the row has a value in a column that the
  /// first row lacks.
  void end_row() { end_rows(1); }
  void end_rows(std::int64_t count);
  /// Removes the values of an unfinished row.
  void undo_row();
  std::int64_t block_rows() const noexcept { return block_rows_; }
  /// Estimated size of the block, including nulls that are still to be added.
  std::size_t block_bytes() const noexcept;
  std::uint64_t written_bytes() const noexcept { return written_bytes_; }

  /// Counts an omitted row. `line`: the result of to_json_line() for bad_rows.jsonl, or empty.
  void skip_row(std::string_view line);
  SourceReport& report() noexcept { return report_; }

  /// Writes the rows of the block.
  void flush();
  /// Finalises the types of all columns, writes the remaining rows and publishes the data set.
  /// Throws BadValue if the final type of a column cannot represent the nulls in its lists. The
  /// error is about the first such column, and the first row with a null in a list of this column.
  SourceReport finish();
  /// The rows of the block. Afterwards, the object may only be destroyed.
  Batch take_rows();

 private:
  struct Stored {
    std::unique_ptr<RowColumn> column;
    std::optional<std::size_t> index{};  ///< index of the writer's column
    std::size_t position = 0;            ///< for sort_columns()
    Column as{};                         ///< the column as stored
  };

  void add_columns(const Schema& schema, bool keeps_kinds);
  void settle();
  void complete_columns();
  void sort_columns();
  void make_writer(bool is_end);
  void write_nulls(const std::vector<Column>& columns);
  void write_block();
  void store_all(bool is_end);
  void store(Stored& stored);
  void report_promotions();

  std::optional<Path> path_;
  std::vector<std::string> order_;
  TableWriterOptions options_;
  bool defers_nulls_;
  bool keeps_kinds_ = false;
  bool some_ = false;
  std::vector<Stored> columns_;
  std::optional<TableWriter> writer_;
  std::int64_t rows_before_ = 0;  ///< rows in earlier blocks
  std::int64_t block_rows_ = 0;
  std::vector<RowColumn*> touched_;    ///< columns with a value in the current row
  std::vector<RowColumn*> required_;   ///< columns that require a value in every row
  std::int64_t value_bytes_ = 0;       ///< size of the block's values
  std::int64_t padded_row_bytes_ = 0;  ///< sum of padded_null_bytes() of all columns
  std::int64_t num_values_ = 0;        ///< number of values in the block
  std::uint64_t written_bytes_ = 0;
  std::string bad_rows_;  ///< lines of bad rows that occurred before writer_ was created
  SourceReport report_;
};

}  // namespace tenfold

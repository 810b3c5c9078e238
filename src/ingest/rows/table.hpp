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

/// Rows that come one by one, as a data set: what the columns are is found out on the way, and
/// columns that turn out to be another kind are written anew.
///
/// A row costs time for the columns that it has a value of. The nulls of the others are added when
/// such a column gets its next value, or when the block is written.
///
/// Thread safety: one thread at a time.
class RowTable {
 public:
  /// Without a path nothing is written: finish() tells what the data set would be. `order`: names
  /// of columns or of records around them, by which columns lie; others as they come.
  /// `defers_nulls`: as of RowColumn.
  RowTable(std::optional<Path> path, const std::optional<Schema>& schema,
           std::vector<std::string> order, const TableWriterOptions& options,
           bool defers_nulls = true);

  std::size_t num_columns() const noexcept { return columns_.size(); }
  RowColumn& column(std::size_t index) noexcept { return *columns_[index].column; }
  /// Prepares `column` for the value of this row, or of several rows, which is added to what is
  /// returned. Once for each row.
  RowColumn& begin_value(RowColumn& column) {
    const std::int64_t absent = block_rows_ - column.num_rows();
    if (absent != 0) [[unlikely]]
      column.add_nulls(absent);
    value_bytes_ -= static_cast<std::int64_t>(column.num_bytes());
    touched_.push_back(&column);
    return column;
  }
  /// The first column that needs a value in every row and has none in this one; null: there is
  /// none.
  RowColumn* missing_column() const;
  /// That will come in all: they must fit on the disk when the first ones are written.
  void expect_rows(std::int64_t count) noexcept { options_.expected_rows = count; }
  /// In the rows so far it has no value.
  RowColumn& add_column(KeyPath path);
  /// Of a column that has had nothing but nulls.
  void remove_column(const RowColumn& column);
  /// What `column`, or a new one if it is null, would be with a value of that type too. Nothing if
  /// there is no such column.
  std::optional<RowType> joined(const RowColumn* column, const RowType& value) const;
  void promote(RowColumn& column, const RowType& type);
  /// Gives all columns the types of all rows; then only finish() follows.
  void settle();
  /// From here on columns lie in this order, which has all of them.
  void arrange(const std::vector<const RowColumn*>& order);

  /// The row counts from here on. Columns that got no value have a null in it.
  void end_row() { end_rows(1); }
  void end_rows(std::int64_t count);
  /// Takes back what columns have of a row that did not end.
  void undo_row();
  std::int64_t block_rows() const noexcept { return block_rows_; }
  /// That the block takes, nulls that are still to be added included.
  std::size_t block_bytes() const noexcept;
  std::uint64_t written_bytes() const noexcept { return written_bytes_; }

  /// A row that is left out. `line` is of to_json_line(), or empty.
  void skip_row(std::string_view line);
  SourceReport& report() noexcept { return report_; }

  /// Writes the rows of the block.
  void flush();
  /// Writes what is left, and publishes it.
  SourceReport finish();

 private:
  struct Stored {
    std::unique_ptr<RowColumn> column;
    std::optional<std::size_t> index{};  ///< among the writer's
    Column as{};                         ///< in the files
  };

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
  std::vector<Stored> columns_;
  std::optional<TableWriter> writer_;
  std::int64_t rows_before_ = 0;  ///< in earlier blocks
  std::int64_t block_rows_ = 0;
  std::vector<RowColumn*> touched_;   ///< those with a value of the row that has not ended
  std::vector<RowColumn*> required_;  ///< those that need a value in every row
  std::int64_t value_bytes_ = 0;      ///< of the block's values
  std::int64_t num_values_ = 0;       ///< of the block
  std::uint64_t written_bytes_ = 0;
  std::string bad_rows_;  ///< lines, before there is a writer
  SourceReport report_;
};

}  // namespace tenfold

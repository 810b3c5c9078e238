#include "ingest/rows/table.hpp"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "formats/folder/keys.hpp"
#include "ingest/table/fit_chunk.hpp"

namespace tenfold {

using namespace detail;

RowTable::RowTable(std::optional<Path> path, const std::optional<Schema>& schema,
                   std::vector<std::string> order, const TableWriterOptions& options,
                   bool defers_nulls, bool keeps_kinds)
    : path_(std::move(path)),
      order_(std::move(order)),
      options_(options),
      defers_nulls_(defers_nulls),
      keeps_kinds_(keeps_kinds) {
  if (schema) add_columns(*schema, false);
}

RowTable::RowTable(const Schema& schema, std::int64_t num_rows, bool keeps_kinds, bool some)
    : defers_nulls_(false), some_(some) {
  add_columns(schema, keeps_kinds);
  if (some) required_.clear();
  for (const Stored& stored : columns_) stored.column->reserve(num_rows);
}

void RowTable::add_columns(const Schema& schema, bool keeps_kinds) {
  for (const Column& column : schema.columns()) {
    columns_.push_back({.column = std::make_unique<RowColumn>(column, keeps_kinds)});
    if (!column.nullable) required_.push_back(columns_.back().column.get());
  }
}

RowColumn& RowTable::add_column(KeyPath path) {
  columns_.push_back({.column = std::make_unique<RowColumn>(std::move(path), rows_before_,
                                                            defers_nulls_, keeps_kinds_)});
  return *columns_.back().column;
}

void RowTable::remove_column(const RowColumn& column) {
  std::erase_if(columns_, [&](const Stored& stored) { return stored.column.get() == &column; });
}

std::optional<RowType> RowTable::joined(const RowColumn* column, const RowType& value) const {
  if (column != nullptr) return column->with(value);
  return RowColumn({}, 0, defers_nulls_, keeps_kinds_).with(value);
}

void RowTable::promote(RowColumn& column, const RowType& type) {
  const std::size_t before = column.num_bytes();
  const std::int64_t null_before = column.padded_null_bytes();
  column.promote(type);
  // The size of the value is added by end_row().
  if (!touched_.empty()) return;
  value_bytes_ += static_cast<std::int64_t>(column.num_bytes() - before);
  padded_row_bytes_ += column.padded_null_bytes() - null_before;
}

void RowTable::settle() {
  for (Stored& stored : columns_) {
    if (stored.column->is_fixed_by_schema()) continue;
    const RowType& type = stored.column->type();
    const RowType all = settled(type);
    if (all.kind != type.kind || all.form != type.form) stored.column->promote(all);
  }
  report_promotions();
  for (const Stored& stored : columns_) {
    const std::int64_t row = stored.column->first_null_not_fitting();
    if (row < 0) continue;
    throw BadValue{dotted(stored.column->path()),
                   "expected " + stored.column->type().text() + ", found null in a list", row};
  }
}

void RowTable::report_promotions() {
  report_.promotions.clear();
  for (const Stored& stored : columns_) {
    const RowColumn& column = *stored.column;
    auto promotion = promotion_of(dotted(column.path()), column.first_type(), column.type());
    if (promotion) report_.promotions.push_back(std::move(*promotion));
  }
}

void RowTable::arrange(const std::vector<const RowColumn*>& order) {
  std::unordered_map<const RowColumn*, std::size_t> places;
  for (const RowColumn* column : order) places.try_emplace(column, places.size());
  std::ranges::stable_sort(columns_, {},
                           [&](const Stored& stored) { return places.at(stored.column.get()); });
}

RowColumn* RowTable::missing_column() const {
  if (touched_.size() == columns_.size()) return nullptr;
  const auto found = std::ranges::find_if(
      required_, [&](const RowColumn* column) { return column->num_rows() == block_rows_; });
  return found == required_.end() ? nullptr : *found;
}

void RowTable::end_rows(std::int64_t count) {
  if (some_ && block_rows_ == 0) required_ = touched_;
  // The row has values in all columns of the first row. If the numbers of columns differ, it also
  // has a value in a column that the first row lacks.
  if (some_ && touched_.size() != required_.size()) {
    const auto other = std::ranges::find_if(touched_, [&](const RowColumn* column) {
      return std::ranges::find(required_, column) == required_.end();
    });
    throw BadValue{
        dotted((*other)->path()),
        "expected no value, as in the first row, found one; give all rows the same keys, with None "
        "for a missing value"};
  }
  for (const RowColumn* column : touched_) {
    value_bytes_ += static_cast<std::int64_t>(column->num_bytes());
    padded_row_bytes_ += column->padded_null_bytes();
  }
  num_values_ += static_cast<std::int64_t>(touched_.size()) * count;
  touched_.clear();
  block_rows_ += count;
}

void RowTable::undo_row() {
  for (RowColumn* column : touched_) {
    column->undo_row(block_rows_);
    value_bytes_ += static_cast<std::int64_t>(column->num_bytes());
    padded_row_bytes_ += column->padded_null_bytes();
  }
  touched_.clear();
}

std::size_t RowTable::block_bytes() const noexcept {
  constexpr std::int64_t kNullBytes = 8;  // a number, or an end offset
  const auto cells = static_cast<std::int64_t>(columns_.size()) * block_rows_;
  const std::int64_t nulls = std::max<std::int64_t>(cells - num_values_, 0);
  const std::int64_t bytes = std::max<std::int64_t>(value_bytes_, 0) + nulls * kNullBytes;
  return static_cast<std::size_t>(std::max(bytes, padded_row_bytes_ * block_rows_));
}

void RowTable::skip_row(std::string_view line) {
  ++report_.num_bad_rows;
  if (line.empty() || !path_) return;
  bad_rows_ += line;
  if (writer_) writer_->append_text(formats::folder::kBadRowsName, std::exchange(bad_rows_, {}));
}

void RowTable::sort_columns() {
  for (Stored& stored : columns_) stored.position = position_of(stored.column->path(), order_);
  std::ranges::stable_sort(columns_, {}, &Stored::position);
}

void RowTable::make_writer(bool is_end) {
  sort_columns();
  std::vector<Column> known;
  for (Stored& stored : columns_) {
    if (!is_end && stored.column->type().form == RowForm::none) continue;
    stored.as = stored.column->stored();
    stored.index = known.size();
    known.push_back(stored.as);
  }
  if (known.empty() && !is_end) return;
  writer_.emplace(*path_, Schema(known), options_);
  if (!bad_rows_.empty()) {
    writer_->append_text(formats::folder::kBadRowsName, std::exchange(bad_rows_, {}));
  }
  if (!known.empty()) write_nulls(known);
}

/// Writes nulls for the rows of earlier blocks, which were not written because no column had a
/// known type.
void RowTable::write_nulls(const std::vector<Column>& columns) {
  constexpr std::int64_t kRows = 4096;
  for (std::int64_t left = rows_before_; left > 0; left -= kRows) {
    const std::int64_t count = std::min(left, kRows);
    std::vector<ColumnBuilder> made;
    std::vector<ColumnChunk> chunks;
    made.reserve(columns.size());
    for (const Column& column : columns) {
      ColumnBuilder& chunk = made.emplace_back(column);
      chunk.add_nulls(count);
      chunks.push_back(chunk.view());
    }
    writer_->append(chunks);
  }
}

/// Converts the written rows of a column if its type has changed, and makes the column nullable in
/// the writer if necessary.
void RowTable::store(Stored& stored) {
  const Column now = stored.column->stored();
  if (!has_same_storage(stored.as, now)) {
    std::int64_t position = 0;
    const Column before = stored.as;
    writer_->change_column(*stored.index, now, [&](const ColumnChunk& chunk) {
      return convert_chunk(before, chunk, now, &stored.column->origins(before), &position);
    });
  } else if (now.nullable) {
    writer_->make_nullable(*stored.index);
  }
  stored.as = now;
}

void RowTable::store_all(bool is_end) {
  std::vector<Column> made;
  const std::size_t num_stored = writer_->num_columns();
  for (Stored& stored : columns_) {
    if (!is_end && stored.column->type().form == RowForm::none) continue;
    if (stored.index) {
      store(stored);
      continue;
    }
    stored.as = stored.column->stored();
    stored.index = num_stored + made.size();
    made.push_back(stored.as);
  }
  if (!made.empty()) writer_->add_columns(std::move(made));
}

void RowTable::write_block() {
  store_all(false);
  std::vector<ColumnChunk> chunks(writer_->num_columns());
  for (Stored& stored : columns_) {
    if (!stored.index) continue;
    chunks[*stored.index] = stored.column->block();
    written_bytes_ += chunks[*stored.index].values.size();
  }
  writer_->append(chunks);
}

/// Adds nulls to the columns that have no value in the last rows of the block.
void RowTable::complete_columns() {
  for (Stored& stored : columns_) {
    stored.column->add_nulls(block_rows_ - stored.column->num_rows());
  }
}

Batch RowTable::take_rows() {
  if (some_) {
    std::erase_if(columns_, [](const Stored& stored) { return stored.column->num_rows() == 0; });
  }
  complete_columns();
  std::vector<BatchColumn> made;
  made.reserve(columns_.size());
  for (Stored& stored : columns_) made.push_back(stored.column->take_rows());
  return {block_rows_, std::move(made)};
}

void RowTable::flush() {
  if (block_rows_ == 0) return;
  complete_columns();
  if (path_) {
    if (!writer_) make_writer(false);
    if (writer_) write_block();
  }
  padded_row_bytes_ = 0;
  for (Stored& stored : columns_) {
    stored.column->clear_block();
    padded_row_bytes_ += stored.column->padded_null_bytes();
  }
  rows_before_ += std::exchange(block_rows_, 0);
  value_bytes_ = num_values_ = 0;
  report_.num_rows = static_cast<std::uint64_t>(rows_before_);
}

SourceReport RowTable::finish() {
  settle();
  flush();
  std::vector<Column> all;
  if (path_) {
    if (!writer_) make_writer(true);
    // This includes columns with only nulls, and columns whose type was determined after their last
    // row was written.
    store_all(true);
    // A column is added to the writer when its type is known, so restore the order of the columns.
    sort_columns();
    std::vector<std::size_t> order;
    for (const Stored& stored : columns_) order.push_back(*stored.index);
    writer_->reorder(order);
    writer_->commit();
    // Without any column, rows are not stored and do not count.
    report_.num_rows = static_cast<std::uint64_t>(writer_->num_rows());
    report_.schema = writer_->schema();
  } else {
    sort_columns();
    for (Stored& stored : columns_) all.push_back(stored.column->stored());
    report_.schema = Schema(std::move(all));
  }
  return report_;
}

}  // namespace tenfold

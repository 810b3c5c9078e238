#include <utility>

#include "dataset/dataset_state.hpp"

namespace tenfold {
namespace {

DatasetPart::Columns all_columns(const Table& table) {
  std::vector<PartColumn> columns(table.schema().size());
  for (std::size_t i = 0; i < columns.size(); ++i) columns[i].index = i;
  return std::make_shared<const std::vector<PartColumn>>(std::move(columns));
}

}  // namespace

DatasetPart::DatasetPart(std::shared_ptr<const Table> open_table, std::int64_t first)
    : table(std::move(open_table)), first_row(first), num_rows_(table->num_rows()) {
  choose(all_columns(*table));
}

DatasetPart::DatasetPart(std::shared_ptr<ClosedTables> tables, std::size_t number,
                         std::int64_t num_rows, std::int64_t first, Columns chosen)
    : first_row(first),
      closed_(std::move(tables)),
      number_(number),
      num_rows_(num_rows),
      chosen_(std::move(chosen)) {}

void DatasetPart::choose(Columns chosen) {
  chosen_ = std::move(chosen);
  columns.clear();
  if (!is_open()) return;
  columns.reserve(chosen_->size());
  for (const PartColumn& column : *chosen_) {
    const StoredColumn& stored = table->stored(column.index);
    columns.push_back(column.is_validity ? stored.validity.get() : &stored);
  }
}

DatasetPart DatasetPart::opened() const {
  if (is_open()) return *this;
  DatasetPart made(closed_->open(number_), first_row);
  made.choose(chosen_);
  return made;
}

bool DatasetPart::is_same(const DatasetPart& other) const noexcept {
  return table == other.table && closed_ == other.closed_ && number_ == other.number_ &&
         *chosen_ == *other.chosen_;
}

std::shared_ptr<const DatasetState> with_open_parts(std::shared_ptr<const DatasetState> state) {
  if (state->all_open || state->parts.size() > ClosedTables::kMaxOpen) return state;
  auto made = std::make_shared<DatasetState>(*state);
  for (DatasetPart& part : made->parts) part = part.opened();
  made->all_open = true;
  return made;
}

}  // namespace tenfold

#include "ingest/text/type_work.hpp"

namespace tenfold {

void TypeWork::begin(const Block& block) {
  block_ = &block;
  types_ = ValueTypes();
}

bool TypeWork::work() {
  RecordCursor cursor(*block_);
  Record record;
  if (block_->file->kind == TextKind::csv) {
    CsvTypes types(types_);
    types.begin_file(*block_->file);
    while (cursor.next(record)) types.add(record.begin, record.end);
  } else {
    JsonTypes types(types_);
    const bool lines = block_->file->kind == TextKind::json_lines;
    while (cursor.next(record)) types.add(record.begin, record.end, lines);
  }
  return false;
}

bool TypeWork::deliver() {
  all_.merge(types_);
  return true;
}

}  // namespace tenfold

#include "ingest/text/row_work.hpp"

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "formats/folder/keys.hpp"
#include "ingest/bad_row.hpp"

namespace tenfold {
namespace {

/// A thread delivers its rows before the end of a block if they have more than this many bytes.
constexpr std::size_t kChunkBytes = std::size_t{4} << 20;
/// A thread also delivers before the end of a block if it has this many rejected records.
constexpr std::size_t kMaxRejected = 4096;
/// Number of rows between checks of the size.
constexpr std::int64_t kSizeCheckRows = 64;

}  // namespace

RowWork::RowWork(const RowPlan& plan, RowSink& sink)
    : plan_(plan),
      sink_(sink),
      rows_(plan),
      json_(plan, rows_),
      csv_(plan, rows_),
      cursor_(Block()) {}

void RowWork::begin(const Block& block) {
  block_ = &block;
  cursor_ = RecordCursor(block);
  at_end_ = false;
  num_records_ = 0;
  delivered_ = 0;
  if (block.file->kind == TextKind::csv && block.file != csv_file_) {
    csv_file_ = block.file;
    csv_.begin_file(*block.file);
  }
}

bool RowWork::work() {
  rows_.clear();
  rejected_.clear();
  const TextKind kind = block_->file->kind;
  Record record;
  while (cursor_.next(record)) {
    const Outcome outcome = kind == TextKind::csv
                                ? csv_.add(record.begin, record.end)
                                : json_.add(record.begin, record.end, kind == TextKind::json_lines);
    const std::uint64_t number = num_records_++;
    if (outcome == Outcome::promote) {
      promote_ = true;
      return false;
    }
    if (outcome != Outcome::kept) {
      rejected_.push_back({.line = record.line,
                           .record = number,
                           .fault = kind == TextKind::csv ? csv_.fault() : json_.fault(),
                           .text = {record.begin, record.end}});
      if (sink_.on_error == OnError::raise) return false;
      if (rejected_.size() == kMaxRejected) return true;
    }
    const std::int64_t count = rows_.num_rows();
    if (sink_.most_rows > 0 && count >= sink_.most_rows) return true;
    if (count % kSizeCheckRows == 0 && rows_.size_bytes() > kChunkBytes) return true;
  }
  at_end_ = true;
  return false;
}

bool RowWork::deliver() {
  if (block_->begins_file && delivered_ == 0) {
    sink_.num_records = 0;
    sink_.first_line = block_->first_line;
  }
  if (promote_) {
    sink_.needs_promotion = true;
    return false;
  }
  for (const Rejected& rejected : rejected_) refuse(rejected);
  write_rows();
  note_names();
  sink_.num_records += num_records_ - delivered_;
  delivered_ = num_records_;
  if (at_end_) sink_.first_line += cursor_.num_lines();
  return true;
}

/// Throws if on_error is raise. Otherwise counts the bad row and, if on_error is collect, also
/// lists it in `bad_rows.jsonl`.
void RowWork::refuse(const Rejected& rejected) {
  const auto row = static_cast<std::int64_t>(sink_.num_records - delivered_ + rejected.record);
  const std::string& file = block_->file->display;
  const std::uint64_t line = sink_.first_line + rejected.line;
  if (sink_.on_error == OnError::raise) {
    const bool is_malformed = rejected.fault.outcome == Outcome::malformed;
    throw error_of_row(is_malformed ? ErrorCode::corrupt : ErrorCode::invalid_argument, file, line,
                       row, rejected.fault);
  }
  ++sink_.num_bad_rows;
  if (sink_.on_error == OnError::collect) {
    const BadRow bad = bad_row_of(file, line, row, rejected.fault, rejected.text);
    sink_.writer.append_text(detail::formats::folder::kBadRowsName, to_json_line(bad));
  }
}

void RowWork::write_rows() {
  const std::vector<ColumnChunk> chunks = rows_.finish();
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    // Make a column nullable only when it gets its first null. This takes no more time than a
    // column that is nullable from the start.
    if (!chunks[i].valid.empty()) sink_.writer.make_nullable(i);
  }
  sink_.writer.append(chunks);
  sink_.num_kept += static_cast<std::uint64_t>(rows_.num_rows());
}

void RowWork::note_names() {
  sink_.seen.resize(plan_.targets.size(), false);
  json_.note_names(sink_.seen, sink_.ignored);
  csv_.note_names(sink_.seen, sink_.ignored);
}

}  // namespace tenfold

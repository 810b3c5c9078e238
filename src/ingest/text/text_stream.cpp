#include "ingest/text/text_stream.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"

namespace tenfold {
namespace {

/// Size of a block in bytes: several hundred small records, so that the cost per block is small.
constexpr std::size_t kBlockBytes = std::size_t{256} << 10;

const Block& no_block() {
  static const Block block;
  return block;
}

}  // namespace

TextStream::TextStream(std::vector<SourceFile> files, const Schema& schema)
    : schema_(schema),
      plan_(plan_of(schema)),
      rows_(plan_),
      json_(plan_, rows_),
      reader_(std::move(files), kBlockBytes),
      cursor_(no_block()) {}

/// Advances to the next block; returns false after the last one.
bool TextStream::next_block() {
  if (block_) first_line_ += cursor_.num_lines();
  auto block = std::make_shared<Block>();
  cursor_ = RecordCursor(no_block());
  block_.reset();
  if (failure_) std::rethrow_exception(failure_);
  try {
    if (!reader_.next(*block)) return false;
  } catch (...) {
    // reader_ has dropped bytes that it had read, so another call could return a part of a record.
    // Later calls throw the same error instead.
    failure_ = std::current_exception();
    throw;
  }
  block_ = std::move(block);
  cursor_ = RecordCursor(*block_);
  if (!block_->begins_file) return true;
  first_line_ = block_->first_line;
  num_records_ = 0;
  file_ = std::make_shared<OpenFile>();
  file_->text = block_->file;
  if (block_->file->kind == TextKind::csv) {
    file_->csv = std::make_unique<CsvRows>(plan_, rows_);
    file_->csv->begin_file(*block_->file);
  }
  return true;
}

std::int64_t TextStream::hold(std::optional<std::int64_t> count) {
  held_.clear();
  const auto wanted = static_cast<std::size_t>(std::max<std::int64_t>(count.value_or(0), 0));
  Record record;
  while (!count || held_.size() < wanted) {
    if (block_ && cursor_.next(record)) {
      held_.push_back({block_, file_, record, first_line_ + record.line, num_records_++});
      continue;
    }
    // Repeat, because a block may have no records.
    if ((!count && !held_.empty()) || !next_block()) break;
  }
  return static_cast<std::int64_t>(held_.size());
}

Outcome TextStream::parse(const Held& held) {
  if (held.file->csv) return held.file->csv->add(held.record.begin, held.record.end);
  const bool lines = held.file->text->kind == TextKind::json_lines;
  return json_.add(held.record.begin, held.record.end, lines);
}

const RowFault& TextStream::fault_of(const Held& held) const {
  return held.file->csv ? held.file->csv->fault() : json_.fault();
}

TextRows TextStream::rows(std::span<const std::int64_t> records, bool stops_at_bad) {
  rows_.clear();
  std::vector<std::size_t> kept;
  std::vector<TextRows::Bad> bad;
  for (std::size_t i = 0; i < records.size(); ++i) {
    const std::int64_t number = records[i];
    if (number < 0 || static_cast<std::size_t>(number) >= held_.size()) {
      throw base::invalid_argument()
          .part("text stream: record")
          .expected("the index of one of the ", held_.size(), " held records")
          .found(number);
    }
    const Held& held = held_[static_cast<std::size_t>(number)];
    if (parse(held) == Outcome::kept) {
      kept.push_back(i);
      continue;
    }
    const RowFault& fault = fault_of(held);
    const std::string& file = held.file->text->display;
    bad.push_back({.position = i,
                   .file = file,
                   .is_malformed = fault.outcome == Outcome::malformed,
                   .row = bad_row_of(file, held.line, held.row, fault,
                                     {held.record.begin, held.record.end})});
    if (stops_at_bad) break;
  }
  return {take_batch(), std::move(kept), std::move(bad)};
}

Batch TextStream::take_batch() {
  const std::vector<ColumnChunk> chunks = rows_.finish();
  std::vector<BatchColumn> columns;
  columns.reserve(chunks.size());
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    columns.push_back(batch_column(schema_.columns()[i], chunks[i]));
  }
  return {rows_.num_rows(), std::move(columns)};
}

}  // namespace tenfold

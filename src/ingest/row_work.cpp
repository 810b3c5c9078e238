#include "ingest/row_work.hpp"

#include <algorithm>
#include <utility>

#include <tenfold/error.hpp>
#include <tenfold/value.hpp>

#include "base/text.hpp"
#include "core/value_json.hpp"
#include "formats/memmap_keys.hpp"

namespace tenfold {
namespace {

/// Memory that the rows of one thread may take before they are written.
constexpr std::size_t kChunkBytes = std::size_t{4} << 20;
/// Rows between two looks at it.
constexpr std::int64_t kLookRows = 64;
/// Of the text of a row that is told of in bad_rows.jsonl.
constexpr std::size_t kMaxTextBytes = std::size_t{1} << 20;

/// `text` with U+FFFD for what is no UTF-8.
std::string repaired(std::string text) {
  if (base::is_utf8(text)) return text;
  std::string made;
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x80) {
      made.push_back(c);
    } else {
      made += "\xEF\xBF\xBD";
    }
  }
  return made;
}

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
  bad_.clear();
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
      BadRow bad;
      bad.line = record.line;
      bad.record = number;
      bad.fault = kind == TextKind::csv ? csv_.fault() : json_.fault();
      const auto length = static_cast<std::size_t>(record.end - record.begin);
      if (sink_.on_error == OnError::collect) {
        bad.text = repaired(std::string(record.begin, std::min(length, kMaxTextBytes)));
      }
      bad_.push_back(std::move(bad));
      if (sink_.on_error == OnError::raise) return false;
    }
    const std::int64_t count = rows_.num_rows();
    if (sink_.most_rows > 0 && count >= sink_.most_rows) return true;
    if (count % kLookRows == 0 && rows_.size_bytes() > kChunkBytes) return true;
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
  for (const BadRow& bad : bad_) refuse(bad);
  write_rows();
  note_names();
  sink_.num_records += num_records_ - delivered_;
  delivered_ = num_records_;
  if (at_end_) sink_.first_line += cursor_.num_lines();
  return true;
}

/// Throws, or keeps account.
void RowWork::refuse(const BadRow& bad) {
  const std::uint64_t row = sink_.num_records - delivered_ + bad.record;
  std::string message = block_->file->display + ": line " +
                        std::to_string(sink_.first_line + bad.line) + " (row " +
                        std::to_string(row) + ")";
  if (!bad.fault.column.empty()) message += ", column " + base::quote(bad.fault.column);
  message += ": " + bad.fault.message;
  if (sink_.on_error == OnError::raise) {
    throw Error(
        bad.fault.outcome == Outcome::malformed ? ErrorCode::corrupt : ErrorCode::invalid_argument,
        message);
  }
  ++sink_.num_bad_rows;
  if (sink_.on_error == OnError::skip) return;
  Value::Object document;
  const auto add = [&](const char* key, Value value) {
    document.members.emplace_back(key, std::move(value));
  };
  add("line", Value(static_cast<std::int64_t>(sink_.first_line + bad.line)));
  add("row", Value(static_cast<std::int64_t>(row)));
  add("column", bad.fault.column.empty() ? Value() : Value(bad.fault.column));
  add("error", Value(message));
  add("text", Value(bad.text));
  sink_.writer.append_text(memmap_folder::kBadRowsName,
                           to_json(Value(std::move(document)), codecs::JsonStyle::python) + "\n");
}

void RowWork::write_rows() {
  const std::vector<ColumnChunk> chunks = rows_.finish();
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    const Column& column = sink_.writer.schema().columns()[i];
    if (chunks[i].valid.empty() || column.nullable) continue;
    // It cost nothing to wait for the first row without a value.
    Column nullable = column;
    nullable.nullable = true;
    sink_.writer.change_column(i, nullable, {});
  }
  sink_.writer.append(chunks);
}

void RowWork::note_names() {
  sink_.seen.resize(plan_.targets.size(), false);
  json_.note_names(sink_.seen, sink_.ignored);
  csv_.note_names(sink_.seen, sink_.ignored);
}

}  // namespace tenfold

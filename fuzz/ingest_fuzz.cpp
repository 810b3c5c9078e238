// Arbitrary bytes as JSON lines, one JSON array, CSV and TSV. They are refused with an Error, or
// split into records. The types of the records give a plan that every valid record fits. Small
// blocks must give the same rows as one block. A stream with the schema of the plan must read as
// many records as the blocks have.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <tenfold/error.hpp>

#include "ingest/text/csv_rows.hpp"
#include "ingest/text/json_rows.hpp"
#include "ingest/text/record_blocks.hpp"
#include "ingest/text/row_builder.hpp"
#include "ingest/text/text_stream.hpp"
#include "ingest/text/value_types.hpp"

namespace {

using namespace tenfold;

class MemoryStream final : public ByteStream {
 public:
  explicit MemoryStream(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::size_t read(std::span<std::byte> into) override {
    const std::size_t count = std::min(into.size(), bytes_.size() - done_);
    if (count > 0) std::memcpy(into.data(), bytes_.data() + done_, count);
    done_ += count;
    return count;
  }
  std::uint64_t num_read() const override { return done_; }

 private:
  std::span<const std::byte> bytes_;
  std::size_t done_ = 0;
};

/// The result of ingesting a text.
struct Rows {
  std::int64_t num_rows = 0;
  std::uint64_t num_bad = 0;
  std::vector<std::vector<std::byte>> values;
  bool operator==(const Rows&) const = default;
};

Rows rows_of(const std::vector<SourceFile>& files, const RowPlan& plan, std::size_t block_bytes) {
  RowBuilder builder(plan);
  JsonRows json(plan, builder);
  CsvRows csv(plan, builder);
  BlockReader reader(files, block_bytes);
  Block block;
  Rows rows;
  while (reader.next(block)) {
    const TextKind kind = block.file->kind;
    if (kind == TextKind::csv) csv.begin_file(*block.file);
    RecordCursor cursor(block);
    Record record;
    while (cursor.next(record)) {
      const Outcome outcome =
          kind == TextKind::csv ? csv.add(record.begin, record.end)
                                : json.add(record.begin, record.end, kind == TextKind::json_lines);
      if (outcome == Outcome::promote) std::abort();
      rows.num_bad += outcome == Outcome::kept ? 0 : 1;
    }
  }
  rows.num_rows = builder.num_rows();
  for (const ColumnChunk& chunk : builder.finish()) {
    if (chunk.num_rows != rows.num_rows) std::abort();
    rows.values.emplace_back(chunk.values.begin(), chunk.values.end());
  }
  return rows;
}

/// Streams the records in groups, and reads each group in reverse order. The first group is one
/// block. Each later group has 3 records; the last one may have fewer. Checks the total number of
/// records.
void stream(const std::vector<SourceFile>& files, const Schema& schema, const Rows& expected) {
  TextStream stream(files, schema);
  std::int64_t num_records = 0;
  std::optional<std::int64_t> count;
  while (const std::int64_t size = stream.hold(count)) {
    std::vector<std::int64_t> records;
    for (std::int64_t i = size; i-- > 0;) records.push_back(i);
    const TextRows rows = stream.rows(records, false);
    if (rows.kept.size() + rows.bad.size() != records.size()) std::abort();
    if (static_cast<std::size_t>(rows.batch.num_rows()) != rows.kept.size()) std::abort();
    num_records += size;
    count = 3;
  }
  if (num_records != expected.num_rows + static_cast<std::int64_t>(expected.num_bad)) std::abort();
}

RowPlan plan_for(const std::vector<SourceFile>& files) {
  ValueTypes types;
  BlockReader reader(files, 64);
  Block block;
  while (reader.next(block)) types.merge(types_in(block));
  std::vector<Promotion> promotions;
  RowPlan plan = plan_of(types, promotions);
  plan.is_final = true;
  return plan;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  for (const SourceKind kind :
       {SourceKind::lines, SourceKind::json, SourceKind::csv, SourceKind::tsv}) {
    const std::vector<SourceFile> files = {
        {"input", kind, [bytes] { return std::make_unique<MemoryStream>(bytes); }}};
    try {
      const RowPlan plan = plan_for(files);
      const Rows rows = rows_of(files, plan, 48);
      if (rows != rows_of(files, plan, std::size_t{1} << 20)) std::abort();
      stream(files, plan.schema(), rows);
    } catch (const Error& error) {
      const bool expected =
          error.code() == ErrorCode::corrupt || error.code() == ErrorCode::invalid_argument;
      if (!expected) std::abort();
    }
  }
  return 0;
}

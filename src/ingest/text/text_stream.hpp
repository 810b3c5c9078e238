#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <tenfold/batch.hpp>
#include <tenfold/schema.hpp>

#include "ingest/bad_row.hpp"
#include "ingest/text/csv_rows.hpp"
#include "ingest/text/json_rows.hpp"
#include "ingest/text/record_blocks.hpp"
#include "ingest/text/row_builder.hpp"
#include "ingest/text/row_plan.hpp"

namespace tenfold {

/// Some records of a text, as rows.
struct TextRows {
  struct Bad {
    std::size_t position = 0;  ///< among the records that were asked for
    std::string file;
    bool is_malformed = false;  ///< no record at all; otherwise it does not fit the schema
    BadRow row;
  };
  Batch batch;                    ///< of those that make rows
  std::vector<std::size_t> kept;  ///< of each row: its position among those that were asked for
  std::vector<Bad> bad;
};

/// The records of text files as rows of a schema, without a data set in between.
///
///   TextStream stream(find_sources({"a.jsonl", "b.jsonl"}), schema);
///   while (const std::int64_t count = stream.hold()) {
///     const TextRows rows = stream.rows(wanted_of(count), false);
///   }
///
/// Records are looked for in all of the text, and parsed only where a row is asked for.
class TextStream {
 public:
  TextStream(std::vector<SourceFile> files, const Schema& schema);
  TextStream(const TextStream&) = delete;
  TextStream& operator=(const TextStream&) = delete;

  /// Holds the next records, instead of those before: `count` of them, or all that the next block
  /// of text has. Returns how many there are: fewer than `count` at the end of the last file, and
  /// none after it. Throws Error(corrupt) for text that is cut off or damaged.
  std::int64_t hold(std::optional<std::int64_t> count = {});

  /// The rows of `records`, numbers of those that are held, in that order. `stops_at_bad`: up to
  /// the first that makes none. Throws Error(invalid_argument) for a number of none.
  TextRows rows(std::span<const std::int64_t> records, bool stops_at_bad);

 private:
  /// A file of which records are held.
  struct OpenFile {
    std::shared_ptr<const TextFile> text;
    std::unique_ptr<CsvRows> csv;
  };
  struct Held {
    std::shared_ptr<const Block> block;
    std::shared_ptr<OpenFile> file;
    Record record;
    std::uint64_t line = 1;  ///< of the file
    std::int64_t row = 0;    ///< of the file
  };
  bool next_block();
  Outcome parse(const Held& held);
  const RowFault& fault_of(const Held& held) const;
  Batch take_batch();

  Schema schema_;
  RowPlan plan_;
  RowBuilder rows_;
  JsonRows json_;
  BlockReader reader_;
  std::shared_ptr<Block> block_;  ///< whose records are looked for
  std::shared_ptr<OpenFile> file_;
  RecordCursor cursor_;
  std::uint64_t first_line_ = 1;  ///< of the file, where the block begins
  std::int64_t num_records_ = 0;  ///< of the file, so far
  std::vector<Held> held_;
};

}  // namespace tenfold

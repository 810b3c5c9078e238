#pragma once

#include <cstdint>
#include <exception>
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

/// Records of text files, parsed to rows.
struct TextRows {
  struct Bad {
    std::size_t position = 0;  ///< position among the requested records
    std::string file;
    bool is_malformed = false;  ///< the record is malformed; otherwise it does not fit the schema
    BadRow row;
  };
  Batch batch;                    ///< the records that became rows
  std::vector<std::size_t> kept;  ///< for each row: its position among the requested records
  std::vector<Bad> bad;
};

/// Parses the records of text files to rows of a schema, without writing a data set.
///
///   TextStream stream(find_sources({"a.jsonl", "b.jsonl"}), schema);
///   while (const std::int64_t count = stream.hold()) {
///     const TextRows rows = stream.rows(wanted_of(count), false);
///   }
///
/// All of the text is split into records, but only the requested records are parsed.
class TextStream {
 public:
  TextStream(std::vector<SourceFile> files, const Schema& schema);
  TextStream(const TextStream&) = delete;
  TextStream& operator=(const TextStream&) = delete;

  /// Advances to the next `count` records, and drops the previous ones. Without a count, advances
  /// to the remaining records of the current block of text, or, if there are none, to all records
  /// of the next block that has any. Returns the number of records: fewer than `count` at the end
  /// of the last file, and 0 after that. Throws as BlockReader::next() does; later calls that need
  /// another block throw the same error.
  std::int64_t hold(std::optional<std::int64_t> count = {});

  /// Parses `records`, indices of the held records, in that order. `stops_at_bad`: stop at the
  /// first rejected record. Throws Error(invalid_argument) for an index out of range.
  TextRows rows(std::span<const std::int64_t> records, bool stops_at_bad);

 private:
  /// A file with held records.
  struct OpenFile {
    std::shared_ptr<const TextFile> text;
    std::unique_ptr<CsvRows> csv;
  };
  struct Held {
    std::shared_ptr<const Block> block;
    std::shared_ptr<OpenFile> file;
    Record record;
    std::uint64_t line = 1;  ///< line in the file
    std::int64_t row = 0;    ///< index of the record in the file
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
  std::exception_ptr failure_;    ///< error of the reader
  std::shared_ptr<Block> block_;  ///< the block that is being split into records
  std::shared_ptr<OpenFile> file_;
  RecordCursor cursor_;
  std::uint64_t first_line_ = 1;  ///< line of the file at which the block starts
  std::int64_t num_records_ = 0;  ///< number of records of the file so far
  std::vector<Held> held_;
};

}  // namespace tenfold

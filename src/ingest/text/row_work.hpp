#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "ingest/table/table_writer.hpp"
#include "ingest/text/block_pipeline.hpp"
#include "ingest/text/csv_rows.hpp"
#include "ingest/text/json_rows.hpp"
#include "ingest/text/row_builder.hpp"
#include "ingest/text/row_plan.hpp"

namespace tenfold {

/// State shared by all threads that write one table. Changed only by the thread that delivers.
struct RowSink {
  TableWriter& writer;
  OnError on_error = OnError::raise;
  std::int64_t most_rows = 0;  ///< maximum number of rows in a chunk; 0: no limit

  std::uint64_t num_bad_rows = 0;
  std::uint64_t num_kept = 0;     ///< number of records that became rows
  bool needs_promotion = false;   ///< the plan is too narrow: everything written is discarded
  std::uint64_t num_records = 0;  ///< records of the file that were delivered
  std::uint64_t first_line = 1;   ///< line of the file at which the block to deliver starts
  std::vector<bool> seen{};       ///< for each target: its name occurred in a record
  /// Names that are not in the plan.
  std::set<std::string> ignored{};
};

/// Converts blocks to rows of a table.
class RowWork final : public BlockWork {
 public:
  RowWork(const RowPlan& plan, RowSink& sink);

  void begin(const Block& block) override;
  bool work() override;
  bool deliver() override;

 private:
  /// A rejected record.
  struct Rejected {
    std::uint64_t line = 0;    ///< line, relative to the block
    std::uint64_t record = 0;  ///< index of the record in the block
    RowFault fault;
    std::string_view text;  ///< points into the block's memory
  };
  void refuse(const Rejected& rejected);
  void write_rows();
  void note_names();

  const RowPlan& plan_;
  RowSink& sink_;
  RowBuilder rows_;
  JsonRows json_;
  CsvRows csv_;
  const Block* block_ = nullptr;
  RecordCursor cursor_;
  std::shared_ptr<const TextFile> csv_file_;
  std::uint64_t num_records_ = 0;  ///< records of the block that were processed so far
  std::uint64_t delivered_ = 0;    ///< number of processed records that were delivered
  std::vector<Rejected> rejected_;
  bool at_end_ = false;  ///< all records of the block were processed
  bool promote_ = false;
};

}  // namespace tenfold

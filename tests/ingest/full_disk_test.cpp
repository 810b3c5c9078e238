#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tenfold/dataset.hpp>
#include <tenfold/ingest.hpp>
#include <tenfold/inspect.hpp>

#include "ingest/arrow/arrow_of.hpp"
#include "ingest/arrow/stream.hpp"
#include "ingest/rows/table.hpp"
#include "support/crash_harness.hpp"
#include "support/temporary_folder.hpp"

// Ingestion on a disk that becomes full at any moment. The space cannot be reserved, because the
// number of bytes is not known in advance.

namespace tenfold {
namespace {

using test::ArrowNode;
using test::ArrowStreamOf;
using test::CrashCase;
using test::Found;

constexpr std::int64_t kRows = 5;

/// Returns which version of the data set is at `path`. The old one has only the column x, the new
/// one has x and s. The first three numbers of x are 0, 1 and 2 in both.
Found found_at(const Path& path) {
  if (!std::filesystem::exists(path)) return Found::absent;
  const Dataset ds(path);
  if (!verify(path).ok() || ds.size() != kRows) return Found::neither;
  const Batch batch = ds.rows(0, kRows);
  const bool is_new = ds.schema().find("s") != nullptr;
  const Tensor& x = batch.at("x");
  for (std::int64_t row = 0; row < 3; ++row) {
    const double number = x.dtype() == DType::float64
                              ? x.at<double>(row)
                              : static_cast<double>(x.at<std::int64_t>(row));
    if (number != static_cast<double>(row)) return Found::neither;
  }
  for (std::int64_t row = 0; is_new && row < kRows; ++row) {
    if (batch.text("s", row) != "s" + std::to_string(row)) return Found::neither;
  }
  return is_new ? Found::new_version : Found::old_version;
}

void ingest_text(const Path& source, const Path& path, bool durable) {
  IngestOptions options;
  options.durable = durable;
  options.num_threads = 1;
  options.batch_rows = 2;
  ingest(source, path, options);
}

void ingest_table(const Path& path, bool durable) {
  TableWriterOptions options;
  options.durable = durable;
  options.num_threads = 1;
  RowTable table(path, std::nullopt, {}, options);
  RowColumn& x = table.add_column({"x"});
  RowColumn& s = table.add_column({"s"});
  table.promote(x, RowType::of(std::int64_t{1}));
  table.promote(s, RowType::text(ColumnKind::string));
  for (std::int64_t row = 0; row < kRows; ++row) {
    if (row == 3) table.promote(x, *x.with(RowType::scalar(DType::float64)));
    if (row < 3) {
      table.begin_value(x).add(row);
    } else {
      table.begin_value(x).add(0.5);
    }
    table.begin_value(s).add(RowText{ColumnKind::string, "s" + std::to_string(row)});
    table.end_row();
    table.flush();
  }
  table.finish();
}

void ingest_stream(const Path& path, bool durable) {
  ArrowNode root("+s");
  ArrowNode x("l", "x");
  ArrowNode s("u", "s");
  x.pointer().buffer(std::vector<std::int64_t>{0, 1, 2, 3, 4}).rows(kRows);
  s.pointer().buffer(std::vector<std::int32_t>{0, 2, 4, 6, 8, 10}).text("s0s1s2s3s4").rows(kRows);
  root.pointer().rows(kRows).child(x).child(s);
  ArrowStreamOf stream(root, 1);
  ArrowIngestOptions options;
  options.table.durable = durable;
  options.table.num_threads = 1;
  ingest_arrow(stream.stream(), path, options);
}

class IngestOnAFullDisk : public testing::Test {
 protected:
  IngestOnAFullDisk() {
    std::ofstream old_rows(folder_ / "old.jsonl");
    std::ofstream new_rows(folder_ / "new.jsonl");
    for (std::int64_t row = 0; row < kRows; ++row) {
      const std::string number = std::to_string(row);
      old_rows << "{\"x\": " << number << "}\n";
      new_rows << "{\"x\": " << number << (row == 3 ? ".5" : "") << ", \"s\": \"s" << number
               << "\"}\n";
    }
  }
  void expect_old_or_new(std::function<void(const Path&, bool)> make_new) {
    CrashCase crash;
    crash.name = "Ingest";
    crash.file_name = "data";
    crash.make_old = [this](const Path& path) { ingest_text(folder_ / "old.jsonl", path, false); };
    crash.make_new = std::move(make_new);
    crash.which = found_at;
    for (const bool with_old : {true, false}) {
      test::expect_survives_failure_of_every_change(crash, false, with_old, ENOSPC);
    }
  }

  test::TemporaryFolder folder_;
};

TEST_F(IngestOnAFullDisk, KeepsTheOldDataSetWhenIngestingText) {
  expect_old_or_new([this](const Path& path, bool durable) {
    ingest_text(folder_ / "new.jsonl", path, durable);
  });
}

TEST_F(IngestOnAFullDisk, KeepsTheOldDataSetWhenIngestingRows) { expect_old_or_new(ingest_table); }

TEST_F(IngestOnAFullDisk, KeepsTheOldDataSetWhenIngestingArrow) {
  expect_old_or_new(ingest_stream);
}

}  // namespace
}  // namespace tenfold

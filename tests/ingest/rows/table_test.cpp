#include "ingest/rows/table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include <tenfold/dataset.hpp>

#include "support/temporary_folder.hpp"

namespace tenfold {
namespace {

using testing::ElementsAre;

void promote(RowTable& table, RowColumn& column, const RowType& value) {
  const auto type = column.with(value);
  ASSERT_TRUE(type.has_value());
  table.promote(column, *type);
}

TEST(RowTable, ColumnsThatWereWrittenBecomeAnotherKind) {
  const test::TemporaryFolder folder;
  RowTable table(folder.path() / "ds", std::nullopt, {}, {});
  RowColumn& x = table.add_column({"x"});
  promote(table, x, RowType::integer(std::int64_t{1}));
  ASSERT_TRUE(x.add_int(1));
  table.end_row();
  table.flush();
  promote(table, x, RowType::scalar(DType::float64));
  ASSERT_TRUE(x.add_float(0.5));
  table.end_row();
  table.flush();
  promote(table, x, RowType::text(ColumnKind::string));
  ASSERT_TRUE(x.add_text(ColumnKind::string, "end"));
  table.end_row();
  const SourceReport report = table.finish();
  EXPECT_EQ(report.num_rows, 3U);
  EXPECT_THAT(report.promotions, ElementsAre(Promotion{"x", "int64", "string"}));
  const Batch batch = Dataset(folder.path() / "ds").rows(0, 3);
  EXPECT_EQ(batch.text("x", 0), "1");
  EXPECT_EQ(batch.text("x", 1), "0.5");
  EXPECT_EQ(batch.text("x", 2), "end");
}

TEST(RowTable, IntegersOfBothEndsAreTextUnlessAFloatComes) {
  const test::TemporaryFolder folder;
  for (const bool has_float : {false, true}) {
    RowTable table(folder.path() / "ds", std::nullopt, {}, {});
    RowColumn& x = table.add_column({"x"});
    promote(table, x, RowType::integer(std::int64_t{-1}));
    ASSERT_TRUE(x.add_int(-1));
    table.end_row();
    table.flush();
    promote(table, x, RowType::integer(std::uint64_t{1} << 63));
    ASSERT_TRUE(x.add_uint(std::uint64_t{1} << 63));
    table.end_row();
    if (has_float) {
      ASSERT_TRUE(x.add_float(0.5));
      table.end_row();
    }
    table.flush();
    table.finish();
    const Dataset ds(folder.path() / "ds");
    if (has_float) {
      EXPECT_EQ(ds.column("x").data<double>()[1], 0x1p63);
    } else {
      const Batch batch = ds.rows(0, 2);
      EXPECT_EQ(batch.text("x", 0), "-1");
      EXPECT_EQ(batch.text("x", 1), "9223372036854775808");
    }
  }
}

TEST(RowTable, RowsFromBeforeAnythingWasKnownAreNull) {
  const test::TemporaryFolder folder;
  RowTable table(folder.path() / "ds", std::nullopt, {}, {});
  RowColumn& x = table.add_column({"x"});
  x.add_nulls(2);
  table.end_rows(2);
  table.flush();
  promote(table, x, RowType::scalar(DType::float64));
  ASSERT_TRUE(x.add_float(7));
  table.end_row();
  table.finish();
  const Tensor column = Dataset(folder.path() / "ds").column("x");
  ASSERT_EQ(column.numel(), 3);
  EXPECT_TRUE(std::isnan(column.data<double>()[1]));
  EXPECT_EQ(column.data<double>()[2], 7);
}

TEST(RowTable, ARowThatDidNotEndLeavesNothing) {
  const test::TemporaryFolder folder;
  RowTable table(folder.path() / "ds", std::nullopt, {}, {});
  RowColumn& x = table.add_column({"x"});
  promote(table, x, RowType::scalar(DType::bool_));
  ASSERT_TRUE(x.add_bool(true));
  table.end_row();
  ASSERT_TRUE(x.add_bool(false));
  table.undo_row();
  EXPECT_EQ(table.finish().num_rows, 1U);
}

TEST(RowTable, ColumnsLieInTheOrderThatWasAskedFor) {
  RowTable table(std::nullopt, std::nullopt, {"b", "r"}, {});
  table.add_column({"r", "y"});
  table.add_column({"a"});
  table.add_column({"b"});
  const SourceReport report = table.finish();
  std::vector<std::string> names;
  for (const Column& column : report.schema.columns()) names.push_back(column.name());
  EXPECT_THAT(names, ElementsAre("b", "r.y", "a"));
}

}  // namespace
}  // namespace tenfold

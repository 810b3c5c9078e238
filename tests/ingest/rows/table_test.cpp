#include "ingest/rows/table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include <tenfold/dataset.hpp>

#include "ingest/row_fault.hpp"
#include "support/temporary_folder.hpp"

namespace tenfold {
namespace {

using testing::ElementsAre;

void promote(RowTable& table, RowColumn& column, const RowType& value) {
  const auto type = column.with(value);
  ASSERT_TRUE(type.has_value());
  table.promote(column, *type);
}

TEST(RowTable, WrittenColumnsAreConverted) {
  const test::TemporaryFolder folder;
  RowTable table(folder.path() / "ds", std::nullopt, {}, {});
  RowColumn& x = table.add_column({"x"});
  promote(table, x, RowType::of(std::int64_t{1}));
  ASSERT_TRUE(x.add(std::int64_t{1}));
  table.end_row();
  table.flush();
  promote(table, x, RowType::scalar(DType::float64));
  ASSERT_TRUE(x.add(0.5));
  table.end_row();
  table.flush();
  promote(table, x, RowType::text(ColumnKind::string));
  ASSERT_TRUE(x.add(RowText{ColumnKind::string, "end"}));
  table.end_row();
  const SourceReport report = table.finish();
  EXPECT_EQ(report.num_rows, 3U);
  EXPECT_THAT(report.promotions, ElementsAre(Promotion{"x", "int64", "string"}));
  const Batch batch = Dataset(folder.path() / "ds").rows(0, 3);
  EXPECT_EQ(batch.text("x", 0), "1");
  EXPECT_EQ(batch.text("x", 1), "0.5");
  EXPECT_EQ(batch.text("x", 2), "end");
}

TEST(RowTable, IntegersThatNoTypeHoldsAreStringsUnlessAFloatFollows) {
  const test::TemporaryFolder folder;
  for (const bool has_float : {false, true}) {
    RowTable table(folder.path() / "ds", std::nullopt, {}, {});
    RowColumn& x = table.add_column({"x"});
    promote(table, x, RowType::of(std::int64_t{-1}));
    ASSERT_TRUE(x.add(std::int64_t{-1}));
    table.end_row();
    table.flush();
    promote(table, x, RowType::of(std::uint64_t{1} << 63));
    ASSERT_TRUE(x.add(std::uint64_t{1} << 63));
    table.end_row();
    if (has_float) {
      ASSERT_TRUE(x.add(0.5));
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

TEST(RowTable, RowsBeforeTheFirstTypedColumnAreNull) {
  const test::TemporaryFolder folder;
  RowTable table(folder.path() / "ds", std::nullopt, {}, {});
  RowColumn& x = table.add_column({"x"});
  x.add_nulls(2);
  table.end_rows(2);
  table.flush();
  promote(table, x, RowType::scalar(DType::float64));
  ASSERT_TRUE(x.add(7.0));
  table.end_row();
  table.finish();
  const Tensor column = Dataset(folder.path() / "ds").column("x");
  ASSERT_EQ(column.numel(), 3);
  EXPECT_TRUE(std::isnan(column.data<double>()[1]));
  EXPECT_EQ(column.data<double>()[2], 7);
}

TEST(RowTable, AnUnfinishedRowIsDiscarded) {
  const test::TemporaryFolder folder;
  RowTable table(folder.path() / "ds", std::nullopt, {}, {});
  RowColumn& x = table.add_column({"x"});
  promote(table, x, RowType::scalar(DType::bool_));
  ASSERT_TRUE(table.begin_value(x).add(true));
  table.end_row();
  ASSERT_TRUE(table.begin_value(x).add(false));
  table.undo_row();
  EXPECT_EQ(table.finish().num_rows, 1U);
}

TEST(RowTable, AnUnfinishedRowDoesNotChangeTheTypeOfAColumn) {
  RowTable table(std::nullopt, std::nullopt, {}, {}, false);
  RowColumn& numbers = table.add_column({"numbers"});
  RowColumn& lists = table.add_column({"lists"});
  promote(table, numbers, RowType::of(std::int64_t{1}));
  RowType floats = RowType::scalar(DType::float64);
  floats.form = RowForm::list;
  promote(table, lists, floats);
  ASSERT_TRUE(table.begin_value(numbers).add(std::int64_t{1}));
  ASSERT_TRUE(table.begin_value(lists).put(0.5) && lists.end_list(1));
  table.end_row();
  ASSERT_TRUE(table.begin_value(numbers).add(std::int64_t{-1}));
  ASSERT_TRUE(table.begin_value(lists).put(nullptr) && lists.end_list(1));
  table.undo_row();
  ASSERT_TRUE(table.begin_value(numbers).add(nullptr));
  table.undo_row();
  RowType strings = RowType::text(ColumnKind::string);
  strings.form = RowForm::list;
  EXPECT_TRUE(lists.with(strings).has_value());
  promote(table, numbers, RowType::of(std::uint64_t{1} << 63));
  ASSERT_TRUE(table.begin_value(numbers).add(std::uint64_t{1} << 63));
  ASSERT_TRUE(table.begin_value(lists).put(1.5) && lists.end_list(1));
  table.end_row();
  const SourceReport report = table.finish();
  const Column& column = report.schema.columns()[0];
  EXPECT_EQ(column.dtype, DType::uint64);
  EXPECT_FALSE(column.nullable);
}

TEST(RowTable, ANullInAListOfIntegersIsRefusedAtTheEnd) {
  RowTable table(std::nullopt, std::nullopt, {}, {});
  RowColumn& x = table.add_column({"r", "x"});
  RowType type = RowType::of(std::int64_t{1});
  type.form = RowForm::list;
  promote(table, x, type);
  ASSERT_TRUE(table.begin_value(x).put(std::int64_t{1}) && x.end_list(1));
  table.end_row();
  ASSERT_TRUE(table.begin_value(x).put(std::int64_t{2}) && x.put(nullptr) && x.end_list(2));
  table.end_row();
  try {
    table.finish();
    FAIL();
  } catch (const BadValue& bad) {
    EXPECT_EQ(bad.column, "r.x");
    EXPECT_EQ(bad.what, "expected a list of int64, found null in a list");
    EXPECT_EQ(bad.row, 1);
  }
}

TEST(RowTable, NullsOfMissingColumnsAreDeferredToTheBlock) {
  const test::TemporaryFolder folder;
  RowTable table(folder.path() / "ds", std::nullopt, {}, {});
  RowColumn& dense = table.add_column({"dense"});
  RowColumn& sparse = table.add_column({"sparse"});
  RowColumn& absent = table.add_column({"absent"});
  for (RowColumn* column : {&dense, &sparse, &absent}) {
    promote(table, *column, RowType::of(std::int64_t{1}));
  }
  for (std::int64_t row = 0; row < 5; ++row) {
    ASSERT_TRUE(table.begin_value(dense).add(row));
    if (row == 3) {
      ASSERT_TRUE(table.begin_value(sparse).add(std::int64_t{30}));
    }
    table.end_row();
  }
  // end_row() appends no nulls, because its time would then be proportional to the number of
  // columns. A column has rows only up to its last value, but block_bytes() counts the missing
  // nulls.
  EXPECT_EQ(dense.num_rows(), 5);
  EXPECT_EQ(sparse.num_rows(), 4);
  EXPECT_EQ(absent.num_rows(), 0);
  EXPECT_EQ(table.block_bytes(), 3U * 5 * 8);
  table.finish();
  const Dataset ds(folder.path() / "ds");
  const Batch batch = ds.rows(0, 5);
  for (std::int64_t row = 0; row < 5; ++row) {
    EXPECT_EQ(ds.column("dense").data<std::int64_t>()[row], row);
    EXPECT_EQ(batch.column("sparse").valid.raw_data()[row], std::byte(row == 3 ? 1 : 0));
    EXPECT_EQ(batch.column("absent").valid.raw_data()[row], std::byte{0});
  }
  EXPECT_EQ(ds.column("sparse").data<std::int64_t>()[3], 30);
}

TEST(RowTable, ReportsTheMissingRequiredColumn) {
  Column x;
  x.path = {"x"};
  x.dtype = DType::int64;
  Column y = x;
  y.path = {"y"};
  y.nullable = true;
  RowTable table(std::nullopt, Schema({x, y}), {}, {});
  EXPECT_EQ(table.missing_column(), &table.column(0));
  ASSERT_TRUE(table.begin_value(table.column(0)).add(std::int64_t{1}));
  EXPECT_EQ(table.missing_column(), nullptr);
}

TEST(RowTable, CollectedRowsKeepTheKindsOfValues) {
  Column x;
  x.path = {"x"};
  x.dtype = DType::float32;
  x.shape = {2};
  x.nullable = true;
  Column n;
  n.path = {"n"};
  n.dtype = DType::int16;
  Column s;
  s.path = {"s"};
  s.kind = ColumnKind::string;
  s.dtype = DType::uint8;
  s.nullable = true;
  RowTable table(Schema({x, n, s}), 2);
  RowColumn& values = table.begin_value(table.column(0));
  ASSERT_TRUE(values.put(std::int64_t{1}) && values.put(0.5) && values.end_list(2));
  RowColumn& counts = table.begin_value(table.column(1));
  EXPECT_FALSE(counts.add(1.0));
  EXPECT_FALSE(counts.add(std::int64_t{40'000}));
  EXPECT_EQ(counts.out_of_range(), "40000");
  ASSERT_TRUE(counts.add(true));
  RowColumn& texts = table.begin_value(table.column(2));
  EXPECT_FALSE(texts.add(std::int64_t{1}));
  EXPECT_FALSE(texts.takes_json());
  ASSERT_TRUE(texts.add(RowText{ColumnKind::string, "a"}));
  table.end_row();
  ASSERT_TRUE(table.begin_value(table.column(1)).add(std::int64_t{2}));
  table.end_row();

  const Batch rows = table.take_rows();
  EXPECT_EQ(rows.num_rows(), 2);
  EXPECT_EQ(rows.at("x").shape(), (Shape{2, 2}));
  EXPECT_EQ(rows.at("x").at<float>(0, 1), 0.5F);
  EXPECT_TRUE(std::isnan(rows.at("x").at<float>(1, 0)));
  EXPECT_EQ(rows.at("n").at<std::int16_t>(0), 1);
  EXPECT_EQ(rows.text("s", 0), "a");
  EXPECT_EQ(rows.column("s").valid.raw_data()[1], std::byte{0});
}

TEST(RowTable, RefusesInexactNumbersIfRequired) {
  Column x;
  x.path = {"x"};
  x.dtype = DType::float64;
  RowTable table(Schema({x}), 1);
  RowColumn& values = table.begin_value(table.column(0));
  values.require_exact();
  EXPECT_FALSE(values.add(true));
  EXPECT_FALSE(values.add(HugeInteger{"36893488147419103232"}));
  EXPECT_FALSE(values.add((std::int64_t{1} << 53) + 1));
  EXPECT_EQ(values.out_of_range(), "9007199254740993");
  EXPECT_TRUE(values.add(std::int64_t{1} << 60));
  table.end_row();
  EXPECT_EQ(table.take_rows().at("x").at<double>(0), 0x1p60);
}

TEST(RowTable, MarksNaNAsValid) {
  Column x;
  x.path = {"x"};
  x.dtype = DType::float64;
  x.nullable = true;
  RowTable table(Schema({x}), 3);
  RowColumn& values = table.column(0);
  for (int row = 0; row < 2; ++row) {
    ASSERT_TRUE(table.begin_value(values).add(std::nan("")));
    if (row == 1) values.mark_valid();
    table.end_row();
  }
  ASSERT_TRUE(table.begin_value(values).add(nullptr));
  values.mark_valid();
  table.end_row();

  const Batch rows = table.take_rows();
  const std::byte* const valid = rows.column("x").valid.raw_data();
  EXPECT_EQ(valid[0], std::byte{0});
  EXPECT_EQ(valid[1], std::byte{1});
  EXPECT_EQ(valid[2], std::byte{0});
}

TEST(RowTable, TakesSomeColumnsIfAllRowsHaveThem) {
  Column x;
  x.path = {"x"};
  x.dtype = DType::int64;
  Column y = x;
  y.path = {"y"};
  const auto add = [](RowTable& table, std::size_t column) {
    ASSERT_TRUE(table.begin_value(table.column(column)).add(std::int64_t{1}));
  };
  RowTable table(Schema({x, y}), 2, true, true);
  EXPECT_EQ(table.missing_column(), nullptr);
  add(table, 1);
  table.end_row();
  EXPECT_EQ(table.missing_column(), &table.column(1));
  add(table, 1);
  table.end_row();
  const Batch rows = table.take_rows();
  ASSERT_EQ(rows.columns().size(), 1U);
  EXPECT_EQ(rows.at("y").shape(), (Shape{2}));

  RowTable refused(Schema({x, y}), 2, true, true);
  add(refused, 1);
  refused.end_row();
  add(refused, 0);
  add(refused, 1);
  EXPECT_THROW(refused.end_row(), BadValue);
}

TEST(RowTable, ColumnsHaveTheRequestedOrder) {
  RowTable table(std::nullopt, std::nullopt, {"b", "r"}, {});
  table.add_column({"r", "y"});
  table.add_column({"a"});
  table.add_column({"b"});
  const SourceReport report = table.finish();
  std::vector<std::string> names;
  for (const Column& column : report.schema.columns()) names.push_back(column.name());
  EXPECT_THAT(names, ElementsAre("b", "r.y", "a"));
}

TEST(RowTable, NullsCountAsRowsOfFixedSizeIfListsHaveOneLength) {
  RowTable table(std::nullopt, std::nullopt, {}, {});
  RowColumn& x = table.add_column({"x"});
  RowColumn& y = table.add_column({"y"});
  RowType list = RowType::scalar(DType::float64);
  list.form = RowForm::list;
  promote(table, x, list);
  promote(table, y, RowType::of(std::int64_t{1}));
  const auto add_list = [&](std::int64_t length) {
    RowColumn& column = table.begin_value(x);
    for (std::int64_t i = 0; i < length; ++i) ASSERT_TRUE(column.put(0.5));
    ASSERT_TRUE(column.end_list(length));
    table.end_row();
  };
  const auto add_nulls = [&](int count) {
    for (int i = 0; i < count; ++i) {
      ASSERT_TRUE(table.begin_value(y).add(std::int64_t{i}));
      table.end_row();
    }
  };
  add_list(2000);
  add_nulls(99);
  EXPECT_GE(table.block_bytes(), 100U * 2000 * 8);
  table.flush();
  add_nulls(100);
  EXPECT_GE(table.block_bytes(), 100U * 2000 * 8);
  // Lists of different lengths are stored as ragged rows, in which a null has only an end offset.
  add_list(1999);
  table.flush();
  add_nulls(100);
  EXPECT_LE(table.block_bytes(), 100U * 32);
}

}  // namespace
}  // namespace tenfold

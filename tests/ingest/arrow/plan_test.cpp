#include "ingest/arrow/plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>

#include "ingest/arrow/arrow_of.hpp"
#include "ingest/ingest_of.hpp"

namespace tenfold {
namespace {

using test::ArrowBatchOf;
using test::ArrowNode;
using test::ArrowStreamOf;
using test::IngestedArrow;
using testing::ElementsAre;

/// Describes the column that stores `field`, for example as "int64[2]" or "string[*], ns".
std::string column_of(ArrowNode& field) {
  ArrowNode root("+s");
  root.child(field);
  const ArrowType batch = parse_arrow_type(root.schema(), "test");
  const std::vector<ArrowColumn> columns = arrow_columns(batch, "test");
  EXPECT_EQ(columns.size(), 1U);
  const Column& column = columns[0].column;
  std::string text = column.dtype_name();
  std::string lengths = column.ragged ? "*" : "";
  for (const std::int64_t length : column.shape) lengths += " " + std::to_string(length);
  if (!lengths.empty()) text += "[" + lengths + "]";
  text += column.nullable ? "?" : "";
  text += column.unit.empty() ? "" : ", " + column.unit;
  return text + (columns[0].is_json ? ", JSON" : "") + (columns[0].is_nested ? ", nested" : "");
}

TEST(ArrowPlan, ScalarsBecomeColumnsOfTheirType) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"c", "int8"},     {"L", "uint64"},        {"e", "float16"},      {"b", "bool"},
      {"n", "float64?"}, {"tdD", "int64, days"}, {"tsu:", "int64, us"}, {"U", "string"},
      {"vu", "string"},  {"d:9,2", "string"},    {"z", "bytes"},        {"vz", "bytes"},
      {"w:3", "bytes"},
  };
  for (const auto& [format, column] : cases) {
    ArrowNode field(format, "x");
    EXPECT_EQ(column_of(field), column) << format;
  }
}

TEST(ArrowPlan, ADictionaryBecomesAColumnOfItsValues) {
  for (const auto& [format, column] :
       {std::pair("u", "string"), {"w:2", "bytes"}, {"tts", "int64, s"}, {"b", "bool"}}) {
    ArrowNode values(format);
    ArrowNode field("c", "x");
    field.dictionary(values);
    EXPECT_EQ(column_of(field), column) << format;
  }
}

TEST(ArrowPlan, ListsBecomeRowsWithAShapeRaggedRowsOrJson) {
  ArrowNode number("i", "item");
  ArrowNode text("u", "item");
  ArrowNode bytes("w:2", "item");
  ArrowNode null("n", "item");
  ArrowNode pair("+w:2", "item");
  pair.child(number);
  ArrowNode list("+l", "item");
  list.child(number);
  ArrowNode texts("+l", "item");
  texts.child(text);
  ArrowNode record("+s", "item");
  record.child(number);
  const std::vector<std::tuple<const char*, ArrowNode*, const char*>> cases = {
      {"+w:3", &number, "int32[ 3]"},      {"+w:3", &pair, "int32[ 3 2]"},
      {"+l", &number, "int32[*]"},         {"+vL", &number, "int32[*]"},
      {"+l", &pair, "int32[* 2]"},         {"+l", &null, "float64[*]"},
      {"+L", &text, "string[*]"},          {"+w:3", &text, "string[*]"},
      {"+vl", &bytes, "bytes[*]"},         {"+l", &list, "int32[*], nested"},
      {"+w:3", &list, "int32[*], nested"}, {"+l", &texts, "string, JSON"},
      {"+l", &record, "string, JSON"},     {"+w:3", &record, "string, JSON"},
  };
  for (const auto& [format, items, column] : cases) {
    ArrowNode field(format, "x");
    field.child(*items);
    EXPECT_EQ(column_of(field), column) << format;
  }
}

TEST(ArrowPlan, DictionariesOfListsOrStructsAndMapsBecomeJson) {
  ArrowNode number("i", "item");
  ArrowNode list("+l");
  list.child(number);
  ArrowNode other("i", "other");
  ArrowNode record("+s", "entries");
  record.child(number).child(other);
  for (ArrowNode* values : {&list, &record}) {
    ArrowNode field("c", "x");
    field.dictionary(*values);
    EXPECT_EQ(column_of(field), "string, JSON");
  }
  ArrowNode map("+m", "x");
  map.child(record);
  EXPECT_EQ(column_of(map), "string, JSON");
}

TEST(ArrowPlan, AStructInJsonHasDistinctFields) {
  ArrowNode a("i", "a");
  ArrowNode record("+s", "item");
  record.child(a).child(a);
  ArrowNode lists("+l", "item");
  lists.child(record);
  ArrowNode field("+l", "x");
  field.child(lists);
  try {
    column_of(field);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_STREQ(error.what(),
                 "test: schema: column \"x\": structs in lists, maps or dictionaries are stored as "
                 "JSON: expected "
                 "distinct names of their fields, found \"a\" twice; rename one of the fields");
  }
}

TEST(ArrowPlan, OnlyRecordBatchesHaveColumns) {
  ArrowNode numbers("i");
  const ArrowType type = parse_arrow_type(numbers.schema(), "stream");
  try {
    arrow_columns(type, "stream");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_STREQ(error.what(),
                 "stream: schema: expected record batches, found arrays of the Arrow format "
                 "\"i\"; put the array into a table of one column");
  }
}

/// A column x of lists of lists of int32. The numbers count from 1 over all rows. `ends` has the
/// offsets that divide the inner lists into rows, and `inner` the offsets that divide the numbers
/// into inner lists.
struct ListsOfLists {
  ArrowNode numbers{"i", "item"};
  ArrowNode lists{"+l", "item"};
  ArrowNode rows{"+l", "x"};

  ListsOfLists(const std::vector<std::int32_t>& ends, const std::vector<std::int32_t>& inner) {
    std::vector<std::int32_t> values;
    for (std::int32_t i = 1; i <= inner.back(); ++i) values.push_back(i);
    numbers.pointer().buffer(values).rows(inner.back());
    lists.pointer().buffer(inner).rows(static_cast<std::int64_t>(inner.size()) - 1).child(numbers);
    rows.pointer().buffer(ends).rows(size(ends)).child(lists);
  }
  static std::int64_t size(const std::vector<std::int32_t>& ends) {
    return static_cast<std::int64_t>(ends.size()) - 1;
  }
};

TEST(ArrowPlan, ListsOfListsOfOneLengthAreRaggedRowsOfThatShape) {
  ListsOfLists column({0, 0, 2, 3}, {0, 2, 4, 6});
  IngestedArrow of;
  const Dataset ds = of.rows(column.rows, 3);
  EXPECT_EQ(test::type_of(ds, "x"), "int32[*, 2]");
  EXPECT_THAT(test::values<std::int32_t>(ds, "x"), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(of.report.promotions, testing::IsEmpty());
}

TEST(ArrowPlan, TheShapeIsThatOfTheFirstRowWithAList) {
  // The two rows of the first batch have no inner list. Each row of the second batch has one inner
  // list of 3 numbers.
  ListsOfLists column({0, 0, 0, 1, 2}, {0, 3, 6});
  IngestedArrow of;
  const Dataset ds = of.rows(column.rows, 4, {.batch_rows = 2});
  EXPECT_EQ(test::type_of(ds, "x"), "int32[*, 3]");
  EXPECT_THAT(test::values<std::int32_t>(ds, "x"), ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST(ArrowPlan, ListsOfListsOfSeveralLengthsBecomeJson) {
  ListsOfLists within({0, 2}, {0, 1, 3});
  IngestedArrow of;
  EXPECT_THAT(test::texts(of.rows(within.rows, 1), "x"), ElementsAre("[[1], [2, 3]]"));
  ASSERT_EQ(of.report.promotions.size(), 1U);
  EXPECT_EQ(of.report.promotions[0].column, "x");
  EXPECT_EQ(of.report.promotions[0].to, "a list as JSON text");
  // The third batch has an inner list of another length, so the rows of the first two batches are
  // converted to JSON as well.
  ListsOfLists later({0, 1, 2, 3}, {0, 2, 4, 5});
  IngestedArrow second;
  EXPECT_THAT(test::texts(second.rows(later.rows, 3, {.batch_rows = 1}), "x"),
              ElementsAre("[[1, 2]]", "[[3, 4]]", "[[5]]"));
  EXPECT_EQ(second.report.promotions.size(), 1U);
}

TEST(ArrowPlan, AnEmptyOrNullInnerListMakesTheColumnJson) {
  ListsOfLists empty({0, 2}, {0, 1, 1});
  IngestedArrow of;
  EXPECT_THAT(test::texts(of.rows(empty.rows, 1), "x"), ElementsAre("[[1], []]"));
  ListsOfLists column({0, 1}, {0, 1});
  ArrowNode lists("+l", "item");
  lists.buffer(std::vector<std::uint8_t>{0b01}).buffer(std::vector<std::int32_t>{0, 1, 1});
  lists.rows(2, 0, 1).child(column.numbers);
  ArrowNode rows("+l", "x");
  rows.pointer().buffer(std::vector<std::int32_t>{0, 2}).rows(1).child(lists);
  IngestedArrow null;
  EXPECT_THAT(test::texts(null.rows(rows, 1), "x"), ElementsAre("[[1], null]"));
}

TEST(ArrowPlan, NullRowsHaveNoInfluenceOnTheShape) {
  // Row 1 is null, and its list has another length.
  ListsOfLists column({0, 1, 2}, {0, 2, 5});
  ArrowNode rows("+l", "x");
  rows.buffer(std::vector<std::uint8_t>{0b01}).buffer(std::vector<std::int32_t>{0, 1, 2});
  rows.rows(2, 0, 1).child(column.lists);
  IngestedArrow of;
  EXPECT_EQ(test::type_of(of.rows(rows, 2), "x"), "int32[*, 2]?");
  // A struct is null in row 1, but its list is not.
  ArrowNode record("+s", "r");
  record.buffer(std::vector<std::uint8_t>{0b01}).rows(2, 0, 1).child(column.rows);
  IngestedArrow nested;
  const Dataset ds = nested.rows(record, 2);
  EXPECT_EQ(test::type_of(ds, "r.x"), "int32[*, 2]?");
  EXPECT_THAT(test::values<std::int32_t>(ds, "r.x"), ElementsAre(1, 2));
}

}  // namespace
}  // namespace tenfold

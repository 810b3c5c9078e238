#include "ingest/text/row_builder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "ingest/text/json_rows.hpp"
#include "ingest/text/json_text.hpp"

namespace tenfold {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

RowPlan plan_for(const std::string& columns) {
  return plan_of(Schema::from_json("{\"columns\": {" + columns + "}}", "test"));
}

Outcome add(JsonRows& json, const std::string& record) {
  const std::string text = record + std::string(JsonText::kSlackBytes, '\0');
  return json.add(text.data(), text.data() + record.size(), true);
}

TEST(RowBuilder, NullsOfMissingColumnsAreDeferred) {
  const RowPlan plan = plan_for(
      "\"n\": {\"dtype\": \"int64\", \"nullable\": true},"
      "\"s\": {\"dtype\": \"string\", \"nullable\": true},"
      "\"t\": {\"dtype\": \"string\", \"nullable\": true}");
  RowBuilder rows(plan);
  JsonRows json(plan, rows);
  EXPECT_EQ(add(json, R"({"n": 1})"), Outcome::kept);
  EXPECT_EQ(add(json, R"({"n": 2})"), Outcome::kept);
  EXPECT_EQ(add(json, R"({"s": "a"})"), Outcome::kept);
  // If a row visited all columns, the time would be proportional to rows times columns.
  EXPECT_EQ(rows.column(2).size_bytes(), 0U);
  // Values of a bad record must not leak into the next row.
  EXPECT_EQ(add(json, R"({"t": "bad", "s": "bad", "n": "bad"})"), Outcome::mismatch);
  EXPECT_EQ(add(json, R"({"n": 4})"), Outcome::kept);
  const std::vector<ColumnChunk> chunks = rows.finish();
  EXPECT_EQ(rows.num_rows(), 4);
  EXPECT_THAT(chunks[0].valid, ElementsAre(1, 1, 0, 1));
  EXPECT_THAT(chunks[1].valid, ElementsAre(0, 0, 1, 0));
  EXPECT_THAT(chunks[1].ends, ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(chunks[2].valid, ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(chunks[2].ends, ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(chunks[2].values, IsEmpty());
  EXPECT_EQ(chunks[0].values.size(), 4 * sizeof(std::int64_t));
}

TEST(RowBuilder, ARecordWithoutARequiredColumnIsRejected) {
  const RowPlan plan = plan_for(
      "\"n\": {\"dtype\": \"int64\", \"nullable\": true},"
      "\"m\": {\"dtype\": \"int64\"}");
  RowBuilder rows(plan);
  JsonRows json(plan, rows);
  EXPECT_EQ(add(json, R"({"m": 1})"), Outcome::kept);
  EXPECT_EQ(add(json, R"({"n": 1})"), Outcome::mismatch);
  EXPECT_EQ(json.fault().column, "m");
  EXPECT_EQ(rows.num_rows(), 1);
}

}  // namespace
}  // namespace tenfold

#include "ingest/text/row_builder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <limits>
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
  // A row writes no null to a column that it lacks. Otherwise, the time would be proportional to
  // the number of rows times the number of columns.
  EXPECT_EQ(rows.column(2).values().size(), 0U);
  // size_bytes() counts these nulls, because finish() adds them.
  EXPECT_EQ(rows.column(2).size_bytes(), 3 * sizeof(std::int64_t));
  EXPECT_EQ(rows.column(0).size_bytes(), 3 * sizeof(std::int64_t));
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

Fit fit_of(const std::string& text, DType dtype) {
  const std::string padded = text + std::string(kNumberSlackBytes, '\0');
  NumberText number;
  EXPECT_TRUE(scan_number(padded.data(), NumberStyle::json, number)) << text;
  std::array<std::byte, 8> into{};
  return put_number(number, dtype, true, into.data());
}

TEST(RowBuilder, NumbersThatASmallFloatDoesNotHaveAreRefused) {
  EXPECT_EQ(fit_of("448", DType::float8_e4m3fn), Fit::fits);
  EXPECT_EQ(fit_of("-464", DType::float8_e4m3fn), Fit::fits);  // the nearest number is -448
  EXPECT_EQ(fit_of("465", DType::float8_e4m3fn), Fit::too_large);
  EXPECT_EQ(fit_of("-1e6", DType::float8_e4m3fn), Fit::too_large);
  EXPECT_EQ(fit_of("3", DType::float8_e8m0fnu), Fit::fits);
  for (const char* text : {"0", "0.0", "-3", "-0.5", "1e60"}) {
    EXPECT_EQ(fit_of(text, DType::float8_e8m0fnu), Fit::too_large) << text;
  }
  EXPECT_EQ(fit_of("1e6", DType::float8_e5m2), Fit::too_large);
  EXPECT_EQ(fit_of("1e6", DType::float8_e4m3fnuz), Fit::too_large);
  EXPECT_EQ(fit_of("-1e-60", DType::float16), Fit::fits);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  std::array<std::byte, 8> into{};
  for (const DType dtype : {DType::float8_e4m3fn, DType::float8_e4m3fnuz, DType::float8_e5m2fnuz,
                            DType::float8_e8m0fnu}) {
    EXPECT_EQ(put_special(kInfinity, dtype, into.data()), Fit::too_large) << to_string(dtype);
    EXPECT_EQ(put_special(kNaN, dtype, into.data()), Fit::fits) << to_string(dtype);
  }
  for (const DType dtype : {DType::float8_e5m2, DType::float16, DType::bfloat16, DType::float32}) {
    EXPECT_EQ(put_special(-kInfinity, dtype, into.data()), Fit::fits) << to_string(dtype);
  }
}

}  // namespace
}  // namespace tenfold

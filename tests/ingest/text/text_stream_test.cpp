#include "ingest/text/text_stream.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include <tenfold/error.hpp>

#include "ingest/ingest_of.hpp"

namespace tenfold {
namespace {

using test::IngestOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Schema schema(const std::string& columns) {
  return Schema::from_json("{\"columns\": {" + columns + "}}", "test");
}

const Schema& numbers() {
  static const Schema made = schema(R"("n": {"dtype": "int64"})");
  return made;
}

std::vector<std::int64_t> ints(const TextRows& rows, const std::string& name) {
  const auto span = rows.batch.at(name).span<std::int64_t>();
  return {span.begin(), span.end()};
}

std::string lines(int begin, int end) {
  std::string text;
  for (int i = begin; i < end; ++i) text += "{\"n\": " + std::to_string(i) + "}\n\n";
  return text;
}

TEST(TextStream, HoldsTheRequestedNumberOfRecordsAcrossFiles) {
  IngestOf of;
  TextStream stream(find_sources({of.write("a.jsonl", lines(0, 5)), of.write("b.csv", "n\n5\n6\n"),
                                  of.write("c.json", "[{\"n\": 7}, {\"n\": 8}]")}),
                    numbers());
  EXPECT_EQ(stream.hold(4), 4);
  EXPECT_THAT(ints(stream.rows(std::vector<std::int64_t>{3, 0}, false), "n"), ElementsAre(3, 0));
  EXPECT_EQ(stream.hold(4), 4);
  const TextRows rows = stream.rows(std::vector<std::int64_t>{3, 2, 1, 0}, false);
  EXPECT_THAT(ints(rows, "n"), ElementsAre(7, 6, 5, 4));
  EXPECT_EQ(stream.hold(4), 1);
  EXPECT_EQ(stream.hold(4), 0);
}

TEST(TextStream, ThrowsTheErrorOfADamagedFileAgain) {
  IngestOf of;
  TextStream stream(find_sources({of.write("a.csv", "n\n1\n"), of.write("b.csv", "n,n\n2,3\n")}),
                    numbers());
  EXPECT_EQ(stream.hold(1), 1);
  for (int i = 0; i < 2; ++i) {
    try {
      stream.hold(1);
      ADD_FAILURE() << "nothing was thrown in call " << i;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
    }
  }
}

TEST(TextStream, HoldsABlockAtATimeByDefault) {
  IngestOf of;
  TextStream stream(find_sources({of.write("a.jsonl", lines(0, 100'000))}), numbers());
  std::int64_t total = 0;
  int times = 0;
  while (const std::int64_t count = stream.hold()) {
    EXPECT_THAT(ints(stream.rows(std::vector<std::int64_t>{count - 1}, false), "n"),
                ElementsAre(total + count - 1));
    total += count;
    ++times;
  }
  EXPECT_EQ(total, 100'000);
  EXPECT_GT(times, 2);
}

TEST(TextStream, ReportsRejectedRecords) {
  IngestOf of;
  const Path path = of.write("a.jsonl", "{\"n\": 0}\n\n{\"n\": 0.5}\n{\n{\"n\": 3}\n");
  TextStream stream(find_sources({path}), numbers());
  ASSERT_EQ(stream.hold(10), 4);
  const std::vector<std::int64_t> all = {0, 1, 2, 3};
  const TextRows rows = stream.rows(all, false);
  EXPECT_THAT(ints(rows, "n"), ElementsAre(0, 3));
  EXPECT_THAT(rows.kept, ElementsAre(0, 3));
  ASSERT_EQ(rows.bad.size(), 2U);
  EXPECT_EQ(rows.bad[0].position, 1U);
  EXPECT_FALSE(rows.bad[0].is_malformed);
  EXPECT_EQ(rows.bad[0].row.error,
            path.string() + ": line 3 (row 1), column \"n\": expected int64, found 0.5");
  EXPECT_EQ(rows.bad[0].row.text, "{\"n\": 0.5}");
  EXPECT_TRUE(rows.bad[1].is_malformed);
  EXPECT_EQ(rows.bad[1].row.line, 4U);
  const TextRows first = stream.rows(all, true);
  EXPECT_THAT(first.kept, ElementsAre(0));
  EXPECT_EQ(first.bad.size(), 1U);
}

TEST(TextStream, ReturnsStringListsAndMissingValuesLikeBatches) {
  IngestOf of;
  const Path path = of.write("a.jsonl",
                             "{\"s\": \"ab\", \"l\": [1, 2], \"t\": [\"x\", \"yz\"], \"k\": 1}\n"
                             "{\"l\": [], \"t\": [], \"k\": null}\n");
  TextStream stream(find_sources({path}), schema(R"("s": {"dtype": "string", "nullable": true},
      "l": {"dtype": "int64", "ragged": true}, "t": {"dtype": "string", "ragged": true},
      "k": {"dtype": "int64", "nullable": true}, "f": {"dtype": "float32", "nullable": true})"));
  ASSERT_EQ(stream.hold(), 2);
  const TextRows rows = stream.rows(std::vector<std::int64_t>{0, 1}, true);
  ASSERT_THAT(rows.bad, IsEmpty());
  EXPECT_EQ(rows.batch.text("s", 0), "ab");
  EXPECT_EQ(rows.batch.text("s", 1), "");
  const auto offsets = rows.batch.column("l").offsets.span<std::int64_t>();
  EXPECT_THAT(std::vector(offsets.begin(), offsets.end()), ElementsAre(0, 2, 2));
  const auto items = rows.batch.column("t").item_offsets.span<std::int64_t>();
  EXPECT_THAT(std::vector(items.begin(), items.end()), ElementsAre(0, 1, 3));
  const auto* valid = rows.batch.column("k").valid.raw_data();
  EXPECT_EQ(valid[0], std::byte{1});
  EXPECT_EQ(valid[1], std::byte{0});
  EXPECT_EQ(rows.batch.column("f").valid.dtype(), Tensor().dtype());
}

TEST(TextStream, RefusesIndicesOfRecordsThatAreNotHeld) {
  IngestOf of;
  TextStream stream(find_sources({of.write("a.jsonl", lines(0, 2))}), numbers());
  stream.hold(2);
  for (const std::int64_t number : {-1, 2}) {
    try {
      stream.rows(std::vector<std::int64_t>{number}, false);
      ADD_FAILURE() << number;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error.what(), HasSubstr("expected the index of one of the 2 held records"));
    }
  }
}

}  // namespace
}  // namespace tenfold

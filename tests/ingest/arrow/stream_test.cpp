#include "ingest/arrow/stream.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <tenfold/dataset.hpp>
#include <tenfold/error.hpp>

#include "ingest/arrow/arrow_of.hpp"
#include "ingest/ingest_of.hpp"
#include "support/temporary_folder.hpp"
#include "support/values.hpp"

namespace tenfold {
namespace {

using test::ArrowBatchOf;
using test::ArrowNode;
using test::ArrowStreamOf;
using test::IngestedArrow;
using test::texts;
using test::type_of;
using testing::ElementsAre;
using testing::HasSubstr;

/// A batch of three rows with an int32 column x and a string column s.
struct Batch {
  ArrowNode root{"+s"};
  ArrowNode x{"i", "x"};
  ArrowNode s{"u", "s"};

  Batch() {
    x.pointer().buffer(std::vector<std::int32_t>{1, 2, 3}).rows(3);
    s.pointer().buffer(std::vector<std::int32_t>{0, 1, 1, 3}).text("abc").rows(3);
    root.pointer().rows(3).child(x).child(s);
  }
};

SourceReport ingest(ArrowNode& batch, const std::optional<Path>& path = {}, int times = 1) {
  ArrowStreamOf stream(batch, times);
  return ingest_arrow(stream.stream(), path, {});
}

void expect_refused(ArrowNode& batch, const std::string& text) {
  try {
    ingest(batch);
    FAIL() << "expected: " << text;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::corrupt);
    EXPECT_THAT(error.what(), HasSubstr(text));
  }
}

TEST(ArrowStream, BatchesBecomeRowsAndTheStreamIsReleased) {
  const test::TemporaryFolder folder;
  Batch batch;
  ArrowStreamOf stream(batch.root, 2);
  const SourceReport report = ingest_arrow(stream.stream(), folder.path() / "ds", {});
  EXPECT_TRUE(stream.released());
  EXPECT_EQ(report.num_rows, 6U);
  const Dataset ds(folder.path() / "ds");
  EXPECT_THAT(test::values<std::int32_t>(ds.column("x")), ElementsAre(1, 2, 3, 1, 2, 3));
  EXPECT_EQ(ds.rows(0, 6).text("s", 5), "bc");
}

TEST(ArrowStream, WithoutAPathOnlyTheSchemaIsInferred) {
  Batch batch;
  const SourceReport report = ingest(batch.root);
  ASSERT_EQ(report.schema.size(), 2U);
  EXPECT_EQ(report.schema.columns()[0].dtype, DType::int32);
  EXPECT_EQ(report.schema.columns()[1].kind, ColumnKind::string);
}

TEST(ArrowStream, OffsetsOfBatchAndColumnAddUp) {
  const test::TemporaryFolder folder;
  Batch batch;
  batch.x.rows(2, 1);
  batch.s.rows(2, 1);
  batch.root.rows(1, 1);
  ingest(batch.root, folder.path() / "ds");
  const Dataset ds(folder.path() / "ds");
  EXPECT_THAT(test::values<std::int32_t>(ds.column("x")), ElementsAre(3));
  EXPECT_EQ(ds.rows(0, 1).text("s", 0), "bc");
}

TEST(ArrowStream, ANullRowOfABatchIsABadRow) {
  Batch batch;
  ArrowNode root("+s");
  root.buffer(std::vector<std::uint8_t>{0b101}).rows(3, 0, 1).child(batch.x).child(batch.s);
  try {
    ingest(root);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr("row 1"));
  }
}

TEST(ArrowStream, RowsWithoutColumnsAreRefused) {
  ArrowNode record("+s", "a");
  record.pointer().rows(2);
  ArrowNode root("+s");
  root.pointer().rows(2).child(record);
  try {
    ingest(root);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(),
                HasSubstr("columns: expected at least one, found rows without columns"));
  }
  record.rows(0);
  root.rows(0);
  EXPECT_EQ(ingest(root).num_rows, 0U);
}

TEST(ArrowStream, AnErrorOfTheProducerKeepsItsMessage) {
  Batch batch;
  ArrowStreamOf stream(batch.root);
  stream.fail(ENOMEM);
  try {
    ingest_arrow(stream.stream(), std::nullopt, {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::io);
    EXPECT_EQ(error.system_errno(), ENOMEM);
    EXPECT_THAT(error.what(), HasSubstr("the producer's own words"));
  }
  EXPECT_TRUE(stream.released());
}

TEST(ArrowStream, AStreamThatWasReleasedIsRefusedAndTheOthersAreReleased) {
  ArrowArrayStream released{};
  EXPECT_THROW(ingest_arrow(released, std::nullopt, {}), Error);
  Batch batch;
  ArrowStreamOf first(batch.root);
  ArrowStreamOf last(batch.root);
  ArrowStreamOf again(batch.root);
  ArrowArrayStream* const streams[] = {&first.stream(), &released, &last.stream()};
  ArrowArrayStream* const retry[] = {&again.stream()};
  EXPECT_THROW(ingest_arrow(streams, retry, std::nullopt, {}), Error);
  EXPECT_TRUE(first.released() && last.released() && again.released());
}

TEST(ArrowStream, AStreamWithoutFunctionsIsRefused) {
  Batch batch;
  ArrowStreamOf no_schema(batch.root);
  no_schema.stream().get_schema = nullptr;
  ArrowStreamOf no_batches(batch.root);
  no_batches.stream().get_next = nullptr;
  for (ArrowStreamOf* stream : {&no_schema, &no_batches}) {
    try {
      ingest_arrow(stream->stream(), std::nullopt, {});
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::corrupt);
      EXPECT_STREQ(error.what(),
                   "Arrow stream: stream: expected functions that return schema and batches, "
                   "found null pointers");
    }
  }
}

TEST(ArrowStream, AnErrorOfTheProducerNeedsNeitherMessageNorErrno) {
  Batch batch;
  ArrowStreamOf stream(batch.root);
  stream.fail(-1);
  stream.stream().get_last_error = nullptr;
  try {
    ingest_arrow(stream.stream(), std::nullopt, {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::io);
    EXPECT_EQ(error.system_errno(), EIO);
    EXPECT_THAT(error.what(), HasSubstr("Arrow stream: the next batch cannot be read"));
  }
}

/// Options with a schema of these columns.
ArrowIngestOptions with_schema(const std::string& columns) {
  ArrowIngestOptions options;
  options.schema = Schema::from_json("{\"columns\": {" + columns + "}}", "test");
  return options;
}

TEST(ArrowStream, ColumnsAreFittedToTheSchemaInItsOrder) {
  Batch batch;
  ArrowNode when("tsm:", "when");
  when.pointer().buffer(std::vector<std::int64_t>{5, 6, 7}).rows(3);
  batch.root.child(when);
  IngestedArrow of;
  const Dataset ds = of.rows(batch.root, with_schema(R"("when": {"dtype": "int64"},
                                                        "x": {"dtype": "float32"})"));
  ASSERT_EQ(ds.schema().size(), 2U);
  EXPECT_EQ(ds.schema().columns()[0].name(), "when");
  EXPECT_EQ(ds.schema().columns()[0].unit, "ms") << "that of the source";
  EXPECT_EQ(type_of(ds, "x"), "float32");
  EXPECT_THAT(test::values<float>(ds.column("x")), ElementsAre(1, 2, 3));
  EXPECT_THAT(of.report.ignored, ElementsAre("s"));
}

TEST(ArrowStream, TimesInAnotherUnitThanInTheSchemaAreRefused) {
  ArrowNode when("tsu:", "when");
  when.pointer().buffer(std::vector<std::int64_t>{5}).rows(1);
  ArrowBatchOf batch(when, 1);
  ArrowStreamOf stream(batch.root());
  try {
    ingest_arrow(stream.stream(), std::nullopt,
                 with_schema(R"("when": {"dtype": "int64", "unit": "s"})"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_STREQ(error.what(),
                 "Arrow stream: column \"when\": expected int64 (s), found int64 (us); convert the "
                 "times in the source, or request their unit");
  }
}

TEST(ArrowStream, CountsWithoutAUnitFitTimesOfTheSchema) {
  ArrowNode when("l", "when");
  when.pointer().buffer(std::vector<std::int64_t>{5}).rows(1);
  IngestedArrow of;
  const Dataset ds = of.rows(when, 1, with_schema(R"("when": {"dtype": "int64", "unit": "s"})"));
  EXPECT_EQ(ds.schema().columns()[0].unit, "s");
}

TEST(ArrowStream, TimesInAStringColumnOfTheSchemaHaveNoUnit) {
  ArrowNode when("tsu:", "when");
  when.pointer().buffer(std::vector<std::int64_t>{5}).rows(1);
  IngestedArrow of;
  const Dataset ds = of.rows(when, 1, with_schema(R"("when": {"dtype": "string"})"));
  EXPECT_EQ(type_of(ds, "when"), "string");
  EXPECT_EQ(ds.schema().columns()[0].unit, "");
}

TEST(ArrowStream, AColumnOfTheSchemaThatTheStreamLacksIsRefused) {
  Batch batch;
  ArrowStreamOf stream(batch.root);
  try {
    ingest_arrow(stream.stream(), std::nullopt, with_schema(R"("y": {"dtype": "int32"})"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_STREQ(error.what(),
                 "Arrow stream: column \"y\": the schema names it, but it is not among the "
                 "columns to read: expected a column of the source");
  }
}

TEST(ArrowStream, ValuesThatDoNotFitTheSchemaAreBadRows) {
  Batch batch;
  ArrowNode x("i", "x");
  x.buffer(std::vector<std::uint8_t>{0b011}).buffer(std::vector<std::int32_t>{1, 300, 3});
  x.rows(3, 0, 1);
  ArrowNode y("i", "y");
  y.pointer().buffer(std::vector<std::int32_t>{1, 300, 3}).rows(3);
  ArrowNode root("+s");
  root.pointer().rows(3).child(batch.s).child(y).child(x);
  ArrowIngestOptions options =
      with_schema(R"("x": {"dtype": "uint8"}, "y": {"dtype": "uint8"}, "s": {"dtype": "string"})");
  ArrowStreamOf refused(root);
  try {
    ingest_arrow(refused.stream(), std::nullopt, options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_STREQ(error.what(), "Arrow stream: row 1, column \"x\": expected uint8, found 300");
  }
  options.on_error = OnError::collect;
  IngestedArrow of;
  const Dataset ds = of.rows(root, options);
  EXPECT_EQ(of.report.num_bad_rows, 2U);
  EXPECT_THAT(test::values<std::uint8_t>(ds.column("x")), ElementsAre(1));
  EXPECT_THAT(texts(ds, "s"), ElementsAre("a"));
  // Row 1 is bad in two columns. It is listed once, with the first of these columns.
  EXPECT_EQ(
      of.bad_rows(),
      R"({"line": null, "row": 1, "column": "x", "error": "expected uint8, found 300", "text": "{\"s\": \"\", \"y\": 300, \"x\": 300}"})"
      "\n"
      R"({"line": null, "row": 2, "column": "x", "error": "expected uint8, found null; make )"
      R"(the column nullable in the schema", "text": "{\"s\": \"bc\", \"y\": 3, )"
      R"(\"x\": null}"})"
      "\n");
}

TEST(ArrowStream, TheTextOfABadRowReplacesBytesThatAreNotUtf8) {
  ArrowNode s("u", "s");
  s.pointer()
      .buffer(std::vector<std::int32_t>{0, 2, 3})
      .text(
          "a\xff"
          "b")
      .rows(2);
  ArrowIngestOptions options;
  options.on_error = OnError::collect;
  IngestedArrow of;
  EXPECT_THAT(texts(of.rows(s, 2, options), "s"), ElementsAre("b"));
  EXPECT_THAT(of.bad_rows(), HasSubstr(R"("error": "expected UTF-8, found \"a\\xff\"")"));
  EXPECT_THAT(of.bad_rows(), HasSubstr(R"("text": "{\"s\": \"a\\ufffd\"}")"));
}

TEST(ArrowStream, AFlatColumnIsNotAColumnOfTheRecordWithItsPrefix) {
  ArrowNode flat("i", "a.b");
  flat.pointer().buffer(std::vector<std::int32_t>{5}).rows(1);
  ArrowIngestOptions options;
  options.columns = {"a"};
  IngestedArrow of;
  EXPECT_THROW(of.rows(flat, 1, options), Error);
  options.columns = {"a.b"};
  EXPECT_THAT(test::values<std::int32_t>(of.rows(flat, 1, options), "a.b"), ElementsAre(5));
}

/// A batch with one int32 column that counts from 1.
struct Numbers {
  ArrowNode root{"+s"};
  ArrowNode column;

  Numbers(const char* name, std::int64_t num_rows) : column("i", name) {
    std::vector<std::int32_t> values(static_cast<std::size_t>(num_rows));
    std::iota(values.begin(), values.end(), 1);
    column.pointer().buffer(values).rows(num_rows);
    root.pointer().rows(num_rows).child(column);
  }
};

TEST(ArrowStream, StreamsWithSomeColumnsEachAreReadSequentially) {
  const test::TemporaryFolder folder;
  Batch batch;
  Numbers numbers("n", 2);
  ArrowStreamOf left(batch.root, 2);
  ArrowStreamOf right(numbers.root, 3);
  ArrowArrayStream* const both[] = {&left.stream(), &right.stream()};
  const SourceReport report = ingest_arrow(both, {}, folder.path() / "ds", {});
  EXPECT_TRUE(left.released() && right.released());
  EXPECT_EQ(report.num_rows, 6U);
  const Dataset ds(folder.path() / "ds");
  EXPECT_THAT(test::values<std::int32_t>(ds.column("x")), ElementsAre(1, 2, 3, 1, 2, 3));
  EXPECT_THAT(test::values<std::int32_t>(ds.column("n")), ElementsAre(1, 2, 1, 2, 1, 2));
  EXPECT_EQ(ds.rows(0, 6).text("s", 5), "bc");
}

TEST(ArrowStream, AStreamWithoutARequestedColumnIsNotRead) {
  Batch batch;
  Numbers numbers("n", 2);
  ArrowStreamOf left(batch.root, 2);
  ArrowStreamOf right(numbers.root, 1);
  left.fail(ENOMEM);
  ArrowArrayStream* const both[] = {&left.stream(), &right.stream()};
  ArrowIngestOptions options;
  options.columns = {"n"};
  const SourceReport report = ingest_arrow(both, {}, std::nullopt, options);
  EXPECT_EQ(report.num_rows, 2U);
  EXPECT_EQ(report.schema.size(), 1U);
}

TEST(ArrowStream, StreamsOfDifferentLengthAreRefusedByColumn) {
  const test::TemporaryFolder folder;
  Batch batch;
  Numbers numbers("n", 2);
  ArrowStreamOf left(batch.root, 2);
  ArrowStreamOf right(numbers.root, 2);
  ArrowArrayStream* const both[] = {&left.stream(), &right.stream()};
  try {
    ingest_arrow(both, {}, folder.path() / "ds", {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::corrupt);
    EXPECT_STREQ(error.what(),
                 "Arrow stream: column \"n\": rows: expected 6, as in column \"x\", found 4");
  }
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "ds"));
}

TEST(ArrowStream, SkippingBadRowsOfSeveralStreamsNeedsStreamsThatCanBeReadTwice) {
  Batch batch;
  Numbers numbers("n", 3);
  ArrowStreamOf left(batch.root, 1);
  ArrowStreamOf right(numbers.root, 1);
  ArrowArrayStream* const both[] = {&left.stream(), &right.stream()};
  ArrowIngestOptions options;
  options.on_error = OnError::skip;
  EXPECT_THROW(ingest_arrow(both, {}, std::nullopt, options), Error);
}

TEST(ArrowStream, ABadRowOfOneStreamIsSkippedInAll) {
  const test::TemporaryFolder folder;
  Batch batch;
  ArrowNode x("i", "n");
  ArrowNode holes("+s");
  x.pointer().buffer(std::vector<std::int32_t>{7, 8, 9}).rows(3);
  holes.buffer(std::vector<std::uint8_t>{0b101}).rows(3, 0, 1).child(x);
  std::vector<std::unique_ptr<ArrowStreamOf>> made;
  std::vector<ArrowArrayStream*> streams;
  for (int time = 0; time < 2; ++time) {
    for (ArrowNode* root : {&batch.root, &holes}) {
      made.push_back(std::make_unique<ArrowStreamOf>(*root, 2));
      streams.push_back(&made.back()->stream());
    }
  }
  const std::span all(streams);
  ArrowIngestOptions options;
  options.on_error = OnError::collect;
  const SourceReport report =
      ingest_arrow(all.first(2), all.last(2), folder.path() / "ds", options);
  EXPECT_EQ(report.num_rows, 4U);
  EXPECT_EQ(report.num_bad_rows, 2U);
  const Dataset ds(folder.path() / "ds");
  EXPECT_THAT(test::values<std::int32_t>(ds.column("x")), ElementsAre(1, 3, 1, 3));
  EXPECT_THAT(test::values<std::int32_t>(ds.column("n")), ElementsAre(7, 9, 7, 9));
  EXPECT_EQ(ds.rows(0, 4).text("s", 3), "bc");
  // "text" has no value of "n", because row 1 of the second stream is null.
  EXPECT_THAT(test::read_bytes(folder / "ds" / "bad_rows.jsonl"),
              HasSubstr(R"("row": 1, "column": "n", "error": "expected a row, found null", )"
                        R"("text": "{\"x\": 2, \"s\": \"\"}")"));
}

TEST(ArrowStream, ABadRowOfSeveralFilesIsNamedByItsFileAndRow) {
  const test::TemporaryFolder folder;
  Batch batch;
  ArrowNode holes("+s");
  holes.buffer(std::vector<std::uint8_t>{0b101}).rows(3, 0, 1).child(batch.x).child(batch.s);
  // Row 1 of each of the three batches is bad. The second file begins with the second batch.
  ArrowIngestOptions options;
  options.find_row = [](std::int64_t row) {
    return row < 3 ? SourceRow{"a", row} : SourceRow{"b", row - 3};
  };
  ArrowStreamOf refused(holes, 3);
  try {
    ingest_arrow(refused.stream(), std::nullopt, options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "a: row 1, column \"x\": expected a row, found null");
  }
  options.on_error = OnError::collect;
  ArrowStreamOf collected(holes, 3);
  ingest_arrow(collected.stream(), folder.path() / "ds", options);
  std::ifstream file(folder.path() / "ds" / "bad_rows.jsonl");
  const std::string lines(std::istreambuf_iterator<char>(file), {});
  EXPECT_THAT(lines, HasSubstr(R"("error": "a: row 1, column \"x\": )"));
  EXPECT_THAT(lines, HasSubstr(R"("row": 4, "column": "x", "error": "b: row 4, column \"x\": )"));
}

/// A column x of lists of lists of int32. Row i has one inner list of `lengths[i]` numbers, which
/// count from 1 over all rows.
struct NestedRows {
  ArrowNode numbers{"i", "item"};
  ArrowNode lists{"+l", "item"};
  ArrowNode x{"+l", "x"};

  explicit NestedRows(const std::vector<std::int32_t>& lengths) {
    std::vector<std::int32_t> ends = {0};
    for (const std::int32_t length : lengths) ends.push_back(ends.back() + length);
    std::vector<std::int32_t> values(static_cast<std::size_t>(ends.back()));
    std::iota(values.begin(), values.end(), 1);
    std::vector<std::int32_t> rows(ends.size());
    std::iota(rows.begin(), rows.end(), 0);
    const auto count = static_cast<std::int64_t>(lengths.size());
    numbers.pointer().buffer(values).rows(ends.back());
    lists.pointer().buffer(ends).rows(count).child(numbers);
    x.pointer().buffer(rows).rows(count).child(lists);
  }
};

TEST(ArrowStream, NestedListsOfAnotherLengthThanInTheSchemaAreBadRows) {
  NestedRows rows({2, 3, 2, 2});
  ArrowIngestOptions options =
      with_schema(R"("x": {"dtype": "int32", "shape": [2], "ragged": true})");
  options.batch_rows = 3;
  options.on_error = OnError::collect;
  IngestedArrow of;
  const Dataset ds = of.rows(rows.x, 4, options);
  EXPECT_EQ(type_of(ds, "x"), "int32[*, 2]");
  EXPECT_EQ(of.report.num_bad_rows, 1U);
  EXPECT_THAT(test::values<std::int32_t>(ds, "x"), ElementsAre(1, 2, 6, 7, 8, 9));
  EXPECT_THAT(of.bad_rows(),
              HasSubstr(R"("row": 1, "column": "x", "error": "expected lists of the shape [2] in )"
                        R"(the list, found another shape", "text": "{\"x\": [[3, 4, 5]]}")"));
}

TEST(ArrowStream, NullsInNestedListsAreNullInJsonWhicheverBatchHasThem) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  ArrowNode numbers("g", "item");
  numbers.buffer(std::vector<std::uint8_t>{0b01010101, 0b1});
  numbers.buffer(std::vector<double>{1, 0, 3, 0, nan, 0, 4, 0, 5}).rows(9, 0, 4);
  ArrowNode lists("+l", "item");
  lists.pointer().buffer(std::vector<std::int32_t>{0, 2, 4, 6, 8, 9}).rows(5).child(numbers);
  ArrowNode x("+l", "x");
  x.pointer().buffer(std::vector<std::int32_t>{0, 1, 2, 3, 5}).rows(4).child(lists);
  ArrowNode s("u", "s");
  s.pointer().buffer(std::vector<std::int32_t>{0, 0, 1, 1, 1}).text("\xff").rows(4);
  ArrowNode root("+s");
  root.pointer().rows(4).child(x).child(s);
  ArrowIngestOptions options;
  options.on_error = OnError::skip;  // row 1 is bad
  options.batch_rows = 3;
  IngestedArrow of;
  EXPECT_THAT(texts(of.rows(root, options), "x"),
              ElementsAre("[[1.0, null]]", "[[NaN, null]]", "[[4.0, null], [5.0]]"));
}

TEST(ArrowStream, NestedListsFillFixedRowsOfTheSchema) {
  NestedRows rows({2, 2, 3});
  ArrowIngestOptions options = with_schema(R"("x": {"dtype": "float32", "shape": [1, 2]})");
  options.on_error = OnError::skip;
  IngestedArrow of;
  const Dataset ds = of.rows(rows.x, 3, options);
  EXPECT_EQ(type_of(ds, "x"), "float32[1, 2]");
  EXPECT_THAT(test::values<float>(ds.column("x")), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(of.report.num_bad_rows, 1U);
}

TEST(ArrowStream, NestedListsDoNotFitASchemaOfOtherDimensionsOrStrings) {
  for (const auto& [column, text] :
       {std::pair(R"("dtype": "int32", "ragged": true)", "expected int32[*], found int32[1, 2]"),
        {R"("dtype": "int32", "shape": [2])", "expected int32[2], found int32[1, 2]"}}) {
    NestedRows rows({2});
    ArrowBatchOf batch(rows.x, 1);
    ArrowStreamOf stream(batch.root());
    try {
      ingest_arrow(stream.stream(), std::nullopt,
                   with_schema("\"x\": {" + std::string(column) + "}"));
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error.what(), HasSubstr("row 0, column \"x\": " + std::string(text)));
    }
  }
  NestedRows rows({2, 1});
  IngestedArrow of;
  const Dataset ds = of.rows(rows.x, 2, with_schema(R"("x": {"dtype": "string"})"));
  EXPECT_THAT(texts(ds, "x"), ElementsAre("[[1, 2]]", "[[3]]"));
}

TEST(ArrowStream, NullsInListsAreNullInAStringColumnOfTheSchema) {
  ArrowNode floats("g", "item");
  floats.buffer(std::vector<std::uint8_t>{0b101}).buffer(std::vector<double>{1, 0, 3});
  floats.rows(3, 0, 1);
  ArrowNode list("+l", "x");
  list.pointer().buffer(std::vector<std::int32_t>{0, 2, 3}).rows(2).child(floats);
  EXPECT_THAT(texts(IngestedArrow().rows(list, 2, with_schema(R"("x": {"dtype": "string"})")), "x"),
              ElementsAre("[1.0, null]", "[3.0]"));

  ArrowNode ints("i", "item");
  ints.buffer(std::vector<std::uint8_t>{0b1101}).buffer(std::vector<std::int32_t>{1, 0, 3, 4});
  ints.rows(4, 0, 1);
  ArrowNode pairs("+w:2", "x");
  pairs.pointer().rows(2).child(ints);
  EXPECT_THAT(
      texts(IngestedArrow().rows(pairs, 2, with_schema(R"("x": {"dtype": "string"})")), "x"),
      ElementsAre("[1, null]", "[3, 4]"));

  // With batches of one row, each batch has inner lists of one length (2 and 1).
  ArrowNode lists("+l", "item");
  lists.pointer().buffer(std::vector<std::int32_t>{0, 2, 3}).rows(2).child(floats);
  ArrowNode nested("+l", "x");
  nested.pointer().buffer(std::vector<std::int32_t>{0, 1, 2}).rows(2).child(lists);
  ArrowIngestOptions options = with_schema(R"("x": {"dtype": "string"})");
  options.batch_rows = 1;
  EXPECT_THAT(texts(IngestedArrow().rows(nested, 2, options), "x"),
              ElementsAre("[[1.0, null]]", "[[3.0]]"));
}

TEST(ArrowStream, BatchesWithInvalidCountsOrPointersAreRefused) {
  const std::vector<std::pair<std::function<void(Batch&)>, std::string>> cases = {
      {[](Batch& b) { b.x.array().n_buffers = 1; }, "column \"x\": buffers: expected 2"},
      {[](Batch& b) { b.x.array().buffers = nullptr; }, "buffers: expected 2"},
      {[](Batch& b) { b.x.array().buffers[1] = nullptr; }, "buffer 1: expected 3 values"},
      {[](Batch& b) { b.x.array().length = 2; }, "length: expected at least 3, found 2"},
      {[](Batch& b) { b.x.array().length = -1; }, "expected numbers from 0 to 2^48"},
      {[](Batch& b) { b.x.array().offset = INT64_MAX; }, "expected numbers from 0 to 2^48"},
      {[](Batch& b) { b.x.array().null_count = 4; }, "null_count: expected -1 to 3"},
      {[](Batch& b) { b.x.array().null_count = 1; }, "buffer 0: expected the validity"},
      {[](Batch& b) { b.root.array().n_children = 1; }, "children: expected 2, found 1"},
      {[](Batch& b) { b.root.array().children = nullptr; }, "found a null pointer"},
      {[](Batch& b) { b.root.array().children[1] = nullptr; }, "child 1: expected an array"},
      {[](Batch& b) { b.s.array().buffers[2] = nullptr; }, "buffer 2: expected 3 bytes"},
      {[](Batch& b) { b.root.array().offset = INT64_MAX; }, "expected numbers from 0 to 2^48"},
  };
  for (const auto& [break_it, text] : cases) {
    Batch batch;
    break_it(batch);
    expect_refused(batch.root, text);
  }
}

TEST(ArrowStream, FixedListsWhoseNumberOfItemsOverflowsAreRefused) {
  constexpr std::int64_t kLists = std::int64_t{1} << 48;
  ArrowNode item("i", "item");
  item.pointer().buffer(std::vector<std::int32_t>{1}).rows(1);
  ArrowNode lists("+w:65536", "x");  // 2^64 items
  lists.pointer().rows(kLists).child(item);
  ArrowNode root("+s");
  root.pointer().rows(kLists).child(lists);
  expect_refused(root, "expected at most 2^48 items, found 281474976710656 lists of 65536");
}

TEST(ArrowStream, DescendingOrOutOfRangeOffsetsAreRefused) {
  for (const auto& offsets : {std::vector<std::int32_t>{0, 2, 1, 3}, {-1, 0, 1, 2}}) {
    Batch batch;
    ArrowNode s("u", "s");
    s.pointer().buffer(offsets).text("abc").rows(3);
    ArrowNode root("+s");
    root.pointer().rows(3).child(s);
    expect_refused(root, "offset");
  }
  for (const auto& offsets : {std::vector<std::int32_t>{0, 2, 1, 3}, {0, 1, 2, 4}}) {
    ArrowNode item("i", "item");
    item.pointer().buffer(std::vector<std::int32_t>{1, 2, 3}).rows(3);
    ArrowNode list("+l", "l");
    list.pointer().buffer(offsets).rows(3).child(item);
    ArrowNode root("+s");
    root.pointer().rows(3).child(list);
    expect_refused(root, "expected items within 0 to 3");
  }
}

TEST(ArrowStream, IndicesBeyondTheDictionaryAreRefused) {
  ArrowNode words("u");
  words.pointer().buffer(std::vector<std::int32_t>{0, 1}).text("a").rows(1);
  for (const std::int8_t index : {std::int8_t{1}, std::int8_t{-1}}) {
    ArrowNode x("c", "x");
    x.pointer().buffer(std::vector<std::int8_t>{0, index}).rows(2).dictionary(words);
    ArrowNode root("+s");
    root.pointer().rows(2).child(x);
    expect_refused(root, "value 1: expected an index in [0, 1) of the dictionary");
  }
}

TEST(ArrowStream, IndicesInNullStructsMayBeBeyondTheDictionary) {
  for (const std::int64_t num_entries : {0, 1}) {
    ArrowNode words("u");
    words.pointer().buffer(std::vector<std::int32_t>{0, 1}).text("a").rows(num_entries);
    ArrowNode numbers("i");
    numbers.buffer(std::vector<std::uint8_t>{0});
    numbers.buffer(std::vector<std::int32_t>{5}).rows(num_entries, 0, -1);
    // Row 1 of `outer` is null. The fields have an offset of 1, so this row has the index 99, which
    // is beyond the dictionary.
    ArrowNode s("c", "s");
    s.pointer().buffer(std::vector<std::int8_t>{0, 0, 99}).rows(2, 1).dictionary(words);
    ArrowNode n("c", "n");
    n.pointer().buffer(std::vector<std::int8_t>{0, 0, 99}).rows(2, 1).dictionary(numbers);
    ArrowNode inner("+s", "inner");
    inner.pointer().rows(2).child(s).child(n);
    ArrowNode outer("+s", "outer");
    const auto bits = static_cast<std::uint8_t>(num_entries == 0 ? 0b00 : 0b01);
    outer.buffer(std::vector<std::uint8_t>{bits}).rows(2, 0, -1).child(inner);
    IngestedArrow of;
    const Dataset ds = of.rows(outer, 2);
    EXPECT_THAT(test::valid(ds, "outer.inner.s"), ElementsAre(num_entries, 0));
    EXPECT_THAT(test::valid(ds, "outer.inner.n"), ElementsAre(0, 0));
    // If the struct in row 1 is not null, its index 99 is an error.
    outer.array().null_count = 0;
    ArrowBatchOf batch(outer, 2);
    expect_refused(batch.root(), "column \"outer.inner.s\": value ");
  }
}

TEST(ArrowStream, ViewsBeyondTheirBufferAreRefused) {
  struct View {
    std::int32_t size;
    char prefix[4];
    std::int32_t buffer;
    std::int32_t offset;
  };
  for (const View view : {View{20, {}, 0, 1}, View{20, {}, 1, 0}, View{-1, {}, 0, 0}}) {
    ArrowNode x("vu", "x");
    x.pointer()
        .buffer(std::vector<View>{view})
        .text("twenty bytes of text")
        .buffer(std::vector<std::int64_t>{20});
    x.rows(1);
    ArrowNode root("+s");
    root.pointer().rows(1).child(x);
    expect_refused(root, "view 0: expected bytes within one of 1 buffers");
  }
}

TEST(ArrowStream, InvalidSchemasAreRefused) {
  const std::vector<std::pair<std::function<void(ArrowSchema&)>, std::string>> cases = {
      {[](ArrowSchema& s) { s.format = nullptr; }, "format: expected a string"},
      {[](ArrowSchema& s) { s.n_children = -1; }, "children"},
      {[](ArrowSchema& s) { s.children = nullptr; }, "found a null pointer"},
      {[](ArrowSchema& s) { s.children[0] = nullptr; }, "child 0: expected a schema"},
      {[](ArrowSchema& s) { s.children[0]->format = "+l"; }, "children: expected 1, found 0"},
      {[](ArrowSchema& s) { s.children[0]->format = "w:-1"; },
       "format: expected a length of 0 to 2147483647, found \"-1\""},
      {[](ArrowSchema& s) { s.children[0]->format = "w:4294967296"; }, "found \"4294967296\""},
      {[](ArrowSchema& s) { s.children[0]->format = "w:16,"; }, "found \"16,\""},
      {[](ArrowSchema& s) { s.children[0]->format = "d:x"; }, "expected a decimal's precision"},
      {[](ArrowSchema& s) { s.children[0]->format = "d:9,2,"; }, "expected a decimal's precision"},
      {[](ArrowSchema& s) { s.children[0]->name = "\xff"; }, "name: expected UTF-8"},
  };
  for (const auto& [break_it, text] : cases) {
    Batch batch;
    break_it(batch.root.schema());
    expect_refused(batch.root, text);
  }
}

TEST(ArrowStream, UnsupportedTypesAreRefused) {
  for (const char* format : {"+ud:0,1", "+r", "tin", "tiD", "?", ""}) {
    Batch batch;
    batch.x.schema().format = format;
    ArrowStreamOf stream(batch.root);
    try {
      ingest_arrow(stream.stream(), std::nullopt, {});
      FAIL() << format;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unsupported);
      EXPECT_THAT(error.what(), HasSubstr("column \"x\""));
    }
  }
}

TEST(ArrowStream, RefusesAColumnNamedLikeTheValidityOfAnother) {
  const test::TemporaryFolder folder;
  for (const bool has_null : {true, false}) {
    ArrowNode root{"+s"};
    ArrowNode a{"i", "a"};
    ArrowNode other{"i", "a.valid"};
    const std::vector<std::int32_t> values = {1, 2};
    if (has_null) {
      a.buffer(std::vector<std::uint8_t>{1}).buffer(values).rows(2, 0, 1);
    } else {
      a.pointer().buffer(values).rows(2);
    }
    other.pointer().buffer(values).rows(2);
    root.pointer().rows(2).child(a).child(other);
    if (!has_null) {
      EXPECT_EQ(ingest(root, folder / "rows").num_rows, 2U);
      continue;
    }
    try {
      ingest(root, folder / "rows");
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error.what(), HasSubstr("rename \"a\" or \"a.valid\""));
    }
    EXPECT_FALSE(std::filesystem::exists(folder / "rows"));
  }
}

}  // namespace
}  // namespace tenfold

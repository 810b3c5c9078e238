#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cmath>
#include <string>
#include <vector>

#include "base/text.hpp"
#include "ingest/ingest_of.hpp"
#include "support/message_of.hpp"

namespace tenfold {
namespace {

using test::IngestOf;
using test::texts;
using test::type_of;
using test::valid;
using test::values;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Schema schema(const std::string& columns) {
  return Schema::from_json("{\"columns\": {" + columns + "}}", "test");
}

TEST(IngestJson, MakesAColumnForEachName) {
  IngestOf of;
  const Dataset ds = of.rows("a.jsonl",
                             "{\"n\": 1, \"f\": 0.5, \"b\": true, \"s\": \"a\\u00e9\\n\"}\n"
                             "{\"n\": -2, \"f\": 1e3, \"b\": false, \"s\": \"\"}\n");
  EXPECT_EQ(type_of(ds, "n"), "int64");
  EXPECT_EQ(type_of(ds, "f"), "float64");
  EXPECT_EQ(type_of(ds, "b"), "bool");
  EXPECT_EQ(type_of(ds, "s"), "string");
  EXPECT_THAT(values<std::int64_t>(ds, "n"), ElementsAre(1, -2));
  EXPECT_THAT(values<double>(ds, "f"), ElementsAre(0.5, 1000.0));
  EXPECT_THAT(texts(ds, "s"), ElementsAre("a\xC3\xA9\n", ""));
  EXPECT_EQ(of.report.num_rows, 2U);
  EXPECT_THAT(of.report.promotions, IsEmpty());
  EXPECT_TRUE(verify(of.target()).ok());
}

TEST(IngestJson, PromotesToTheFirstTypeThatHoldsAllValues) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"null null", "float64?"},
      {"true false", "bool"},
      {"true 2", "int64"},
      {"1 2.5", "float64"},
      {"true 2.5", "float64"},
      {"1 \"a\"", "string"},
      {"9223372036854775808 1", "uint64"},
      {"9223372036854775808 -1", "string"},
      {"18446744073709551616 1", "string"},
      {"9007199254740993 0.5", "string"},
      {"9007199254740992 0.5", "float64"},
      {"null 1", "int64?"},
      {"[1,2] [3,4]", "int64[2]"},
      {"[1,2] [3]", "int64[*]"},
      {"[] []", "float64[*]"},
      {"[] [1]", "int64[*]"},
      {"[1.5,null] [2,3]", "float64[2]"},
      {"[1,2.5] [2,3]", "float64[2]"},
      {"[\"a\"] [\"b\"]", "string[*]"},
      {"[\"a\",1] [true]", "string[*]"},
      {"[[1,2],[3,4]] [[5,6],[7,8]]", "int64[2, 2]"},
      {"[[1,2]] [[5,6],[7,8]]", "int64[*, 2]"},
      {"[[1,2]] [[5],[7]]", "string"},
      {"[{\"a\":1}] []", "string"},
      {"[1,[2]] [1]", "string"},
      {"null [1]", "int64[1]?"},
      {"NaN 1", "float64"},
      {"-Infinity Infinity", "float64"},
  };
  for (const auto& [rows, expected] : cases) {
    IngestOf of;
    std::string text;
    for (std::string_view rest = rows; !rest.empty();) {
      const std::size_t end = rest.find(' ');
      text += "{\"x\": " + std::string(rest.substr(0, end)) + "}\n";
      rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    }
    EXPECT_EQ(type_of(of.rows("a.jsonl", text), "x"), expected) << rows;
  }
}

TEST(IngestJson, PromotesWhenALaterRowNeedsIt) {
  // Types are inferred from the first block of the file. The last row is not in this block.
  std::string start;
  for (int i = 0; i < 200'000; ++i) start += "{\"x\": " + std::to_string(i) + "}\n";
  {
    IngestOf of;
    const Dataset ds = of.rows("a.jsonl", start + "{\"x\": 0.5}\n");
    EXPECT_EQ(type_of(ds, "x"), "float64");
    EXPECT_EQ(values<double>(ds, "x")[199'999], 199'999.0);
    EXPECT_EQ(values<double>(ds, "x")[200'000], 0.5);
    EXPECT_THAT(of.report.promotions, ElementsAre(Promotion{"x", "int64", "float64"}));
    EXPECT_TRUE(verify(of.target()).ok());
  }
  {
    IngestOf of;
    const Dataset ds = of.rows("a.jsonl", start + "{\"x\": \"007\"}\n");
    EXPECT_EQ(type_of(ds, "x"), "string");
    EXPECT_EQ(texts(ds, "x")[199'999], "199999");
    EXPECT_EQ(texts(ds, "x")[200'000], "007");
  }
  {
    IngestOf of;
    const Dataset ds = of.rows("a.jsonl", start + "{\"x\": 1, \"late\": [1, 2]}\n{\"x\": null}\n");
    EXPECT_EQ(type_of(ds, "late"), "int64[2]?");
    EXPECT_EQ(type_of(ds, "x"), "int64?");
    EXPECT_EQ(valid(ds, "late")[200'000], 1);
    EXPECT_EQ(valid(ds, "late")[200'001], 0);
    EXPECT_EQ(valid(ds, "x")[0], 1);
    EXPECT_EQ(valid(ds, "x")[200'001], 0);
  }
}

TEST(IngestJson, AMissingValueInALateRowMakesAColumnNullable) {
  std::string text;
  for (int i = 0; i < 200'000; ++i) text += "{\"x\": " + std::to_string(i) + ", \"y\": 0.5}\n";
  IngestOf of;
  const Dataset ds = of.rows("a.jsonl", text + "{\"y\": 1}\n{\"x\": 7, \"y\": null}\n");
  EXPECT_EQ(type_of(ds, "x"), "int64?");
  EXPECT_EQ(valid(ds, "x")[200'000], 0);
  EXPECT_EQ(valid(ds, "x")[199'999], 1);
  EXPECT_TRUE(std::isnan(values<double>(ds, "y")[200'001]));
  EXPECT_TRUE(verify(of.target()).ok());
}

TEST(IngestJson, IsTheSameOnOneThreadAndOnFour) {
  std::string text;
  for (int i = 0; i < 120'000; ++i) {
    text += "{\"i\": " + std::to_string(i) + ", \"s\": \"" +
            std::string(static_cast<std::size_t>(i % 37), 'x') + "\", \"l\": [" +
            (i % 3 == 0   ? ""
             : i % 3 == 1 ? "1"
                          : "2, 3") +
            "]}\n";
  }
  IngestOf of;
  const Dataset one = of.rows("a.jsonl", text, {.num_threads = 1});
  const std::vector<std::string> expected = texts(one, "s");
  IngestOf several;
  const Dataset ds = several.rows("a.jsonl", text, {.num_threads = 4});
  EXPECT_EQ(values<std::int64_t>(ds, "i"), values<std::int64_t>(one, "i"));
  EXPECT_EQ(values<std::int64_t>(ds, "i")[119'999], 119'999);
  EXPECT_EQ(texts(ds, "s"), expected);
  EXPECT_EQ(values<std::int64_t>(ds, "l"), values<std::int64_t>(one, "l"));
}

TEST(IngestJson, KeepsTheSourceTextOfPromotedValues) {
  IngestOf of;
  const Dataset ds = of.rows(
      "a.jsonl",
      "{\"x\": 1.50, \"l\": [{\"a\": 1}, 2], \"t\": [1.0, \"a\"]}\n"
      "{\"x\": \"b\", \"l\": [ 1 ], \"t\": [true]}\n{\"x\": false, \"l\": [], \"t\": []}\n");
  EXPECT_THAT(texts(ds, "x"), ElementsAre("1.50", "b", "false"));
  EXPECT_THAT(texts(ds, "l"), ElementsAre("[{\"a\": 1}, 2]", "[ 1 ]", "[]"));
  const Batch batch = ds.rows(0, 3);
  const auto bytes = batch.at("t").span<std::uint8_t>();
  EXPECT_EQ(std::string(bytes.begin(), bytes.end()), "1.0atrue");
  EXPECT_THAT(of.report.promotions, ElementsAre(Promotion{"x", "float64", "string"},
                                                Promotion{"l", "a list", "a list as JSON text"}));
}

TEST(IngestJson, PromotionsOfListsNameTheTypesOfItems) {
  IngestOf of;
  of.rows("a.jsonl",
          "{\"l\": [1], \"m\": [1], \"n\": [[1, 2]], \"d\": [1]}\n"
          "{\"l\": [0.5], \"m\": [[1], 2], \"n\": [[0.5, 2]], \"d\": [1, 2]}\n");
  EXPECT_THAT(of.report.promotions,
              ElementsAre(Promotion{"l", "a list of int64", "a list of float64"},
                          Promotion{"m", "a list of int64", "a list as JSON text"},
                          Promotion{"n", "a list of int64[2]", "a list of float64[2]"}));
}

TEST(IngestJson, NestsRecords) {
  IngestOf of;
  const Dataset ds = of.rows("a.jsonl",
                             "{\"a\": {\"b\": 1, \"c\": {\"d\": \"x\"}}, \"a.e\": 7}\n"
                             "{\"a\": null, \"a.e\": 8}\n{\"a.e\": 9, \"a\": {\"b\": 3}}\n");
  const Batch batch = ds.rows(0, 3);
  ASSERT_EQ(ds.schema().size(), 3U);
  EXPECT_EQ(ds.schema().columns()[0].path, (KeyPath{"a", "b"}));
  EXPECT_EQ(ds.schema().columns()[1].path, (KeyPath{"a", "c", "d"}));
  EXPECT_TRUE(ds.schema().columns()[0].nullable);
  EXPECT_THAT(values<std::int64_t>(ds.select({"a.e"}), "a.e"), ElementsAre(7, 8, 9));
}

TEST(IngestJson, AValueUnderTheNameOfAnEmptyRecordIsABadRow) {
  for (const std::string& object : {std::string("{}"), std::string("{\"b\": {}}")}) {
    IngestOf of;
    const std::string text = "{\"x\": 1, \"a\": " + object + "}\n{\"x\": 2, \"a\": null}\n";
    const Dataset ds = of.rows("a.jsonl", text);
    EXPECT_EQ(ds.schema().size(), 1U);
    EXPECT_THAT(values<std::int64_t>(ds, "x"), ElementsAre(1, 2));
    EXPECT_THAT(
        IngestOf().error("a.jsonl", text + "{\"x\": 3, \"a\": 5}\n", ErrorCode::invalid_argument),
        HasSubstr("line 3 (row 2), column \"a\": expected an object, found 5"));
  }
}

TEST(IngestJson, MembersOfAnEmptyRecordBecomeColumns) {
  IngestOf of;
  const Dataset ds = of.rows("a.jsonl", "{\"a\": {\"b\": {}}}\n{\"a\": {\"b\": {\"c\": 1}}}\n");
  EXPECT_EQ(type_of(ds, "a.b.c"), "int64?");
}

TEST(IngestJson, AnEmptyRecordIsCheckedOnlyIfItIsSelected) {
  const std::string text =
      "{\"r\": {\"x\": 1, \"e\": {}}, \"f\": {}}\n{\"r\": {\"x\": 2, \"e\": {}}, \"f\": 5}\n";
  IngestOf of;
  EXPECT_EQ(of.rows("a.jsonl", text, {.columns = {"r"}}).size(), 2);
  EXPECT_THAT(IngestOf().error("a.jsonl", text + "{\"r\": {\"x\": 3, \"e\": 5}}\n",
                               ErrorCode::invalid_argument, {.columns = {"r"}}),
              HasSubstr("column \"r.e\": expected an object, found 5"));
}

TEST(IngestJson, FaultsInNestedRecordsNameTheirWholePath) {
  IngestOf of;
  EXPECT_THAT(of.error("a.jsonl", "{\"a\": {\"r\": {\"x\": 1}}}\n{\"a\": {\"r\": 5}}\n",
                       ErrorCode::invalid_argument),
              HasSubstr("column \"a.r\": expected an object, found 5"));
  EXPECT_THAT(of.error("a.jsonl", "{\"a\": {\"r\": 1}}\n{\"a\": {\"r\": 1, \"r\": 1}}\n",
                       ErrorCode::corrupt),
              HasSubstr("column \"a.r\": the key is duplicated"));
  IngestOptions options;
  options.schema = schema(R"("a": {"columns": {"b": {"dtype": "int64"}}})");
  EXPECT_THAT(
      of.error("a.jsonl", "{\"a\": {\"b\": 1, \"n\": 1, \"n\": 1}}\n", ErrorCode::corrupt, options),
      HasSubstr("column \"a.n\": the key is duplicated"));
}

TEST(IngestJson, ReadsJsonFilesOfOneArrayOrLines) {
  for (const char* text :
       {"[{\"x\": 1}, {\"x\": 2}]", "\xEF\xBB\xBF [\n {\"x\": 1},\n{\"x\":\n2}\n]\n",
        "{\"x\": 1}\n{\"x\": 2}", "\n{\"x\": 1}\r\n\r\n{\"x\": 2}\r\n"}) {
    IngestOf of;
    EXPECT_THAT(values<std::int64_t>(of.rows("a.json", text), "x"), ElementsAre(1, 2)) << text;
  }
  IngestOf of;
  // The array may begin after the first block.
  const std::string blanks((std::size_t{1} << 20) + 5, '\n');
  EXPECT_THAT(values<std::int64_t>(of.rows("a.json", blanks + "[{\"x\": 1}]"), "x"),
              ElementsAre(1));
  EXPECT_EQ(IngestOf().rows("a.json", blanks).size(), 0);
  EXPECT_EQ(IngestOf().rows("a.json", "[]").size(), 0);
  EXPECT_EQ(IngestOf().rows("a.json", "").size(), 0);
  EXPECT_EQ(IngestOf().rows("a.jsonl", "").size(), 0);
  EXPECT_THAT(texts(of.rows("a.json", "[{\"x\": \"a,]b\\\"}\"},{\"x\":\"\\\\\"}]"), "x"),
              ElementsAre("a,]b\"}", "\\"));
}

TEST(IngestJson, ReadsArraysLargerThanABlock) {
  std::string text = "[";
  for (int i = 0; i < 300'000; ++i)
    text += (i == 0 ? "" : ",\n") + ("{\"x\": " + std::to_string(i)) + "}";
  IngestOf of;
  const Dataset ds = of.rows("a.json", text + "]\n\n");
  ASSERT_EQ(ds.size(), 300'000);
  EXPECT_EQ(values<std::int64_t>(ds, "x")[299'999], 299'999);
  IngestOf cut;
  EXPECT_THAT(cut.error("a.json", text, ErrorCode::corrupt), HasSubstr("expected ']'"));
  EXPECT_THAT(cut.error("a.json", text + "] 1", ErrorCode::corrupt),
              HasSubstr("more after its ']'"));
  EXPECT_THAT(cut.error("a.json", text + ",]", ErrorCode::corrupt), HasSubstr("line 300000"));
  for (const char* const rows : {"[{\"x\": 1},]", "[,{\"x\": 1}]"}) {
    EXPECT_THAT(cut.error("a.json", rows, ErrorCode::corrupt),
                HasSubstr("expected an object before and after ',', found the end of the record"));
  }
}

TEST(IngestJson, NamesFileLineRowAndColumn) {
  IngestOf of;
  const std::string good = "{\"x\": 1}\n\n";
  EXPECT_EQ(of.error("a.jsonl", good + "{\"x\": [1]}\n", ErrorCode::invalid_argument),
            "a.jsonl: line 3 (row 1), column \"x\": expected int64, found [1]");
  EXPECT_EQ(of.error("a.jsonl", good + "{\"x\": 1", ErrorCode::corrupt),
            "a.jsonl: line 3 (row 1): expected ',' or '}', found the end of the record at "
            "byte 8");
  EXPECT_EQ(of.error("a.jsonl", good + "[1]\n", ErrorCode::corrupt),
            "a.jsonl: line 3 (row 1): expected an object, found \"[1]\" at byte 1");
  EXPECT_EQ(of.error("a.jsonl", good + "{\"x\": 1, \"x\": 2}\n", ErrorCode::corrupt),
            "a.jsonl: line 3 (row 1), column \"x\": the key is duplicated: expected it once");
}

TEST(IngestJson, AMalformedListOfAnotherLengthIsMalformed) {
  EXPECT_EQ(
      IngestOf().error("a.jsonl", "{\"x\": [1, 2]}\n{\"x\": [1, 2, 3 y]}\n", ErrorCode::corrupt),
      "a.jsonl: line 2 (row 1): expected ',' or ']', found \"y]}\" at byte 16");
}

TEST(IngestJson, ManyBadRowsOfABlockAreDeliveredInParts) {
  std::string text = "{\"x\": 1}\n";
  for (int i = 0; i < 10'000; ++i) text += "1\n";
  IngestOf of;
  EXPECT_EQ(of.rows("a.jsonl", text, {.on_error = OnError::collect}).size(), 1);
  EXPECT_EQ(of.report.num_bad_rows, 10'000U);
  std::ifstream bad_rows(of.target() / "bad_rows.jsonl");
  std::string line;
  for (int row = 1; std::getline(bad_rows, line); ++row) {
    const std::string start =
        "{\"line\": " + std::to_string(row + 1) + ", \"row\": " + std::to_string(row) + ",";
    ASSERT_THAT(line, testing::StartsWith(start));
  }
}

TEST(IngestJson, DecodesEveryEscapeOfAString) {
  const std::vector<std::pair<const char*, std::string>> cases = {
      {R"(a\"b)", "a\"b"},
      {R"(\\)", "\\"},
      {R"(\/)", "/"},
      {R"(\b\f\n\r\t)", "\b\f\n\r\t"},
      {R"(\u0041\u00e9\u20AC)", "A\xC3\xA9\xE2\x82\xAC"},
      {R"(\u0000x)", std::string("\0x", 2)},
      {R"(\uD834\uDD1E)", "\xF0\x9D\x84\x9E"},
      {R"(\udbff\udfff.)", "\xF4\x8F\xBF\xBF."},
  };
  for (const auto& [json, text] : cases) {
    IngestOf of;
    EXPECT_THAT(texts(of.rows("a.jsonl", "{\"s\": \"" + std::string(json) + "\"}\n"), "s"),
                ElementsAre(text))
        << json;
    // A column of lists of objects is stored as JSON. The object in this list has the escapes in
    // its key and in its value.
    IngestOf nested;
    const std::string row = "{\"k\": [{\"" + std::string(json) + "\": \"" + json + "\"}]}";
    const Value kept = from_json(texts(nested.rows("a.jsonl", row + "\n"), "k")[0], "test");
    const auto& record =
        std::get<Value::Object>(std::get<Value::List>(kept.data()).items[0].data());
    EXPECT_EQ(record.members[0].first, text) << json;
    EXPECT_EQ(record.members[0].second, Value(text)) << json;
  }
}

TEST(IngestJson, RefusesInvalidJson) {
  for (const char* row : {"{\"x\": \"\\ud800\"}",
                          "{\"x\": \"\\ud800\\u0041\"}",
                          "{\"x\": \"\\udc00\"}",
                          "{\"x\": \"\xFF\"}",
                          "{\"x\": \"\xED\xA0\x80\"}",
                          "{\"x\": \"a\tb\"}",
                          "{\"x\": 01}",
                          "{\"x\": 1.}",
                          "{\"x\": .5}",
                          "{\"x\": +1}",
                          "{\"x\": nul}",
                          "{\"x\": 'a'}",
                          "{x: 1}",
                          "{\"x\": 1,}",
                          "{\"x\": [1,]}",
                          "{\"x\": 1} 2",
                          "{\"x\": \"\\q\"}",
                          "{\"x\": \"abc",
                          "{\"x\": \"abc\\",
                          "{\"x\"",
                          "{",
                          "{\"x\":",
                          "nonsense",
                          "{\"x\": [1, 2}",
                          "{\"x\": \"\\u12\"}",
                          "{\"\xFF\": 1}"}) {
    IngestOf of;
    EXPECT_THAT(of.error("a.jsonl", std::string("{\"x\": 1}\n") + row + "\n", ErrorCode::corrupt),
                HasSubstr("line 2 (row 1)"))
        << row;
    IngestOf skipping;
    const Dataset ds =
        skipping.rows("a.jsonl", "{\"x\": 1}\n" + std::string(row) + "\n{\"x\": 2}\n",
                      {.on_error = OnError::skip});
    EXPECT_THAT(values<std::int64_t>(ds, "x"), ElementsAre(1, 2)) << row;
    EXPECT_EQ(skipping.report.num_bad_rows, 1U);
  }
}

TEST(IngestJson, RefusesValuesNestedTooDeep) {
  IngestOf of;
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  EXPECT_THAT(of.error("a.jsonl", "{\"x\": " + deep + "}\n", ErrorCode::corrupt),
              HasSubstr("nested less deep"));
  std::string records = "1";
  for (int i = 0; i < 2000; ++i) records = "{\"a\": " + records + "}";
  EXPECT_THAT(of.error("a.jsonl", records + "\n", ErrorCode::corrupt),
              HasSubstr("nested less deep"));
}

TEST(IngestJson, RefusesMoreNestedRecordsThanASchemaMayHave) {
  std::string records = "1";
  for (int i = 0; i < 66; ++i) records = "{\"a\": " + records + "}";
  IngestOf of;
  EXPECT_THAT(of.error("a.jsonl", records + "\n", ErrorCode::invalid_argument),
              HasSubstr("expected at most 64 nested records, found 65"));
}

TEST(IngestJson, CollectsBadRowsWithTheirSourceText) {
  IngestOf of;
  const Dataset ds = of.rows("a.jsonl", "{\"x\": 1}\n{\"x\": [2]}\noops \xFF\n{\"x\": 3}\n",
                             {.on_error = OnError::collect});
  EXPECT_THAT(values<std::int64_t>(ds, "x"), ElementsAre(1, 3));
  EXPECT_EQ(of.report.num_bad_rows, 2U);
  std::ifstream file(of.target() / "bad_rows.jsonl");
  std::string first;
  std::string second;
  std::getline(file, first);
  std::getline(file, second);
  const Value row = from_json(first, "test");
  const auto& members = std::get<Value::Object>(row.data());
  EXPECT_EQ(*members.find("line"), Value(std::int64_t{2}));
  EXPECT_EQ(*members.find("row"), Value(std::int64_t{1}));
  EXPECT_EQ(*members.find("column"), Value("x"));
  EXPECT_EQ(*members.find("text"), Value("{\"x\": [2]}"));
  EXPECT_THAT(second, HasSubstr("\"column\": null"));
  EXPECT_THAT(second, HasSubstr("oops \\ufffd"));
  EXPECT_TRUE(verify(of.target()).ok());
  // bad_rows.jsonl is a part of the data set, so the next ingest() to this path removes it.
  of.rows("a.jsonl", "{\"x\": 1}\n");
  EXPECT_FALSE(std::filesystem::exists(of.target() / "bad_rows.jsonl"));
}

TEST(IngestJson, ALongValueInAMessageIsCutBetweenCharacters) {
  std::string list = "[\"x";
  for (int i = 0; i < 24; ++i) list += "\xC3\xA9";
  list += "\"]";
  IngestOf of;
  EXPECT_EQ(
      of.error("a.jsonl", "{\"x\": 1}\n{\"x\": " + list + "}\n", ErrorCode::invalid_argument),
      "a.jsonl: line 2 (row 1), column \"x\": expected int64, found " + list.substr(0, 39) + "...");
  of.rows("a.jsonl", "{\"x\": 1}\n{\"x\": " + list + "}\n", {.on_error = OnError::collect});
  EXPECT_EQ(of.report.num_bad_rows, 1U);
}

TEST(IngestJson, FillsTheColumnsOfAGivenSchema) {
  IngestOf of;
  IngestOptions options;
  options.schema = schema(
      "\"x\": {\"dtype\": \"float32\", \"shape\": [2]}, \"i\": {\"dtype\": \"int8\"}, "
      "\"h\": {\"dtype\": \"float16\", \"nullable\": true}, \"s\": {\"dtype\": \"string\"}, "
      "\"r\": {\"dtype\": \"int32\", \"ragged\": true}, \"f\": {\"dtype\": \"float64\"}");
  const Dataset ds = of.rows("a.jsonl",
                             "{\"i\": -128, \"x\": [1, 0.1], \"s\": 7, \"other\": 1, \"r\": [1], "
                             "\"f\": 9007199254740993}\n"
                             "{\"i\": 127, \"x\": [2, 3], \"h\": 0.5, \"s\": {\"a\": 1}, \"r\": "
                             "[], \"f\": 1}\n",
                             options);
  EXPECT_EQ(type_of(ds, "x"), "float32[2]");
  EXPECT_THAT(values<float>(ds, "x"), ElementsAre(1.0F, 0.1F, 2.0F, 3.0F));
  EXPECT_THAT(values<std::int8_t>(ds, "i"), ElementsAre(-128, 127));
  EXPECT_THAT(texts(ds, "s"), ElementsAre("7", "{\"a\": 1}"));
  EXPECT_THAT(values<double>(ds, "f"), ElementsAre(9007199254740992.0, 1.0));
  EXPECT_THAT(of.report.ignored, ElementsAre("other"));
}

TEST(IngestJson, RefusesValuesThatDoNotFitAGivenSchema) {
  const std::vector<std::array<const char*, 3>> cases = {
      {"\"dtype\": \"int8\"", "128", "a number that fits int8, found 128"},
      {"\"dtype\": \"float16\"", "70000", "a number that fits float16, found 70000"},
      {"\"dtype\": \"float16\"", "-7e4", "a number that fits float16, found -7e4"},
      {"\"dtype\": \"float32\"", "1e300", "a number that fits float32, found 1e300"},
      {"\"dtype\": \"uint8\"", "-1", "a number that fits uint8, found -1"},
      {"\"dtype\": \"int64\"", "1.5", "expected int64, found 1.5"},
      {"\"dtype\": \"int64\"", "\"a\"", "expected int64, found \"a\""},
      {"\"dtype\": \"bool\"", "2", "a number that fits bool, found 2"},
      {"\"dtype\": \"float32\"", "null", "expected a value, found null; make the column nullable"},
      {"\"dtype\": \"float32\", \"shape\": [2]", "[1]", "expected a list of length 2, found [1]"},
      {"\"dtype\": \"float32\", \"shape\": [2]", "[1, 2, 3]", "expected a list of length 2"},
      {"\"dtype\": \"float32\", \"shape\": [2]", "1", "expected float32[2], found 1"},
      {"\"dtype\": \"int32\", \"ragged\": true", "[1, null]", "a value in a list of int32"},
      {"\"dtype\": \"string\", \"ragged\": true", "[\"a\", null]",
       "a string in a list, found null"},
      {"\"dtype\": \"complex64\"", "1", "expected complex64, found 1"},
  };
  for (const auto& [column, value, message] : cases) {
    IngestOf of;
    IngestOptions options;
    options.schema = schema("\"x\": {" + std::string(column) + "}");
    const std::string found = of.error("a.jsonl", "{\"x\": " + std::string(value) + "}\n",
                                       ErrorCode::invalid_argument, options);
    EXPECT_THAT(found, HasSubstr("a.jsonl: line 1 (row 0), column \"x\": "));
    EXPECT_THAT(found, HasSubstr(message));
  }
}

TEST(IngestJson, RefusesAColumnOfTheSchemaThatNoRowHas) {
  IngestOf of;
  IngestOptions options;
  options.schema = schema("\"price\": {\"dtype\": \"float32\", \"nullable\": true}");
  EXPECT_THAT(of.error("a.jsonl", "{\"prise\": 1}\n", ErrorCode::invalid_argument, options),
              HasSubstr("column \"price\" of the schema: expected the column in some row, found no "
                        "row with it; did you mean \"prise\""));
  EXPECT_EQ(of.rows("b.jsonl", "", options).schema().size(), 1U);
}

TEST(IngestJson, SelectsColumnsInTheRequestedOrder) {
  IngestOf of;
  const std::string text = "{\"a\": 1, \"b\": 2, \"r\": {\"x\": 3, \"y\": 4}}\n";
  const Dataset ds = of.rows("a.jsonl", text, {.columns = {"r", "a"}});
  ASSERT_EQ(ds.schema().size(), 3U);
  EXPECT_EQ(ds.schema().columns()[0].name(), "r.x");
  EXPECT_EQ(ds.schema().columns()[2].name(), "a");
  IngestOf unknown;
  EXPECT_THAT(unknown.error("a.jsonl", text, ErrorCode::key_not_found, {.columns = {"aa"}}),
              HasSubstr("column \"aa\": expected a column of the data, found no column of this "
                        "name; did you mean \"a\""));
  IngestOptions given{.columns = {"a", "b"}};
  given.schema = schema(R"("a": {"dtype": "int64"})");
  EXPECT_THAT(unknown.error("a.jsonl", text, ErrorCode::key_not_found, given),
              HasSubstr("column \"b\": expected a column of the schema, found no column"));
}

TEST(IngestJson, AFlatColumnTakesPrecedenceOverAColumnOfARecord) {
  IngestOf of;
  const std::string text = "{\"x\": 1, \"a\": {\"b\": 7}, \"a.b\": 5, \"a.c\": 6}\n";
  const Dataset flat = of.rows("a.jsonl", text, {.columns = {"a.b"}});
  ASSERT_EQ(flat.schema().size(), 1U);
  EXPECT_THAT(values<std::int64_t>(flat, "a.b"), ElementsAre(5));
  const Dataset record = of.rows("a.jsonl", text, {.columns = {"a"}});
  ASSERT_EQ(record.schema().size(), 1U);
  EXPECT_THAT(values<std::int64_t>(record, "a.b"), ElementsAre(7));
}

TEST(IngestJson, ReadsFilesInOrderAndGlobsSorted) {
  IngestOf of;
  const Path b = of.write("b.jsonl", "{\"x\": 2}\n");
  const Path a = of.write("a.jsonl", "{\"x\": 1}");
  of.write("c.csv", "x\n3\n");
  EXPECT_THAT(values<std::int64_t>(of.rows({b, a}), "x"), ElementsAre(2, 1));
  EXPECT_THAT(values<std::int64_t>(of.rows({a.parent_path() / "?.jsonl"}), "x"), ElementsAre(1, 2));
  EXPECT_THAT(values<std::int64_t>(of.rows({a.parent_path() / "*.[cj]s*"}), "x"),
              ElementsAre(1, 2, 3));
  EXPECT_THROW(of.rows({a.parent_path() / "*.ndjson"}), Error);
  EXPECT_THROW(of.rows({a.parent_path() / "none.jsonl"}), Error);
  test::expect_error(ErrorCode::unsupported,
                     "d.parquet: expected text, found .parquet; tenfold.ingest in Python reads "
                     "such files (Parquet and Arrow: with tenfold[arrow]); ingest text files "
                     "in a separate call",
                     [&] { of.rows({a, of.write("d.parquet", "PAR1")}); });
}

TEST(IngestJson, TheFormatOptionAppliesToAnyFileName) {
  IngestOf of;
  const Path lines = of.write("corpus.txt", "{\"x\": 1}\n{\"x\": 2}\n");
  const Path tsv = of.write("table.csv", "x\ty\n3\t4\n");
  EXPECT_THAT(values<std::int64_t>(of.rows({lines}, {.format = SourceFormat::json_lines}), "x"),
              ElementsAre(1, 2));
  EXPECT_THAT(values<std::int64_t>(of.rows({tsv}, {.format = SourceFormat::tsv}), "y"),
              ElementsAre(4));
  EXPECT_EQ(infer_schema({lines}, 1, nullptr, SourceFormat::json).size(), 1U);
  IngestOf other;
  EXPECT_THAT(other.error("a.txt", "x\n1\n", ErrorCode::unsupported),
              HasSubstr("set the option format (jsonl, ndjson, json, csv, tsv)"));
  EXPECT_EQ(source_format_from("ndjson"), SourceFormat::json_lines);
  EXPECT_THROW(source_format_from("parquet"), Error);
}

TEST(IngestJson, RecordsWithoutAnyKeyAreRefused) {
  IngestOf of;
  EXPECT_EQ(of.error("a.jsonl", "{}\n{}\n{}\n", ErrorCode::invalid_argument),
            "a.jsonl: columns: expected a key in some record, found none in 3 records");
  EXPECT_EQ(IngestOf().rows("b.jsonl", "").size(), 0);
  EXPECT_THAT(valid(of.rows("c.jsonl", "{}\n{\"x\": 1}\n{}\n"), "x"), ElementsAre(0, 1, 0));
}

TEST(IngestJson, ListsOfOnlyNullsAreFloats) {
  IngestOf of;
  const Dataset ds = of.rows("a.jsonl", "{\"x\": [null]}\n{\"x\": [null]}\n");
  EXPECT_EQ(type_of(ds, "x"), "float64[1]");
  EXPECT_TRUE(std::isnan(values<double>(ds, "x")[1]));
}

TEST(IngestJson, ReadsRowsLargerThanABlock) {
  IngestOf of;
  const std::string large(3'000'000, 'x');
  const Dataset ds = of.rows("a.jsonl", "{\"s\": \"" + large + "\"}\n{\"s\": \"b\"}\n");
  EXPECT_EQ(texts(ds, "s"), (std::vector<std::string>{large, "b"}));
}

TEST(IngestJson, ReadsRowsWithManyAbsentColumns) {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += "{\"c" + std::to_string(i % 1500) + "\": 1}\n";
  IngestOf of;
  const Dataset ds = of.rows("a.jsonl", text, {.batch_rows = 100, .num_threads = 2});
  EXPECT_EQ(ds.schema().size(), 1500U);
  EXPECT_EQ(ds.size(), 3000);
  EXPECT_EQ(valid(ds.select({"c7"}), "c7")[1507], 1);
}

TEST(IngestJson, StopsWhenTheMonitorCancels) {
  class Impatient final : public Monitor {
   public:
    void report(std::uint64_t, std::uint64_t, std::string_view) override {}
    bool stop() override { return true; }
  };
  std::string text;
  for (int i = 0; i < 400'000; ++i) text += "{\"x\": " + std::to_string(i) + "}\n";
  IngestOf of;
  Impatient monitor;
  IngestOptions options;
  options.monitor = &monitor;
  try {
    of.rows("a.jsonl", text, options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.system_errno(), ECANCELED);
  }
  EXPECT_FALSE(std::filesystem::exists(of.target()));
}

TEST(IngestJson, InfersTheSchemaOfTheWholeSource) {
  IngestOf of;
  const Path path = of.write("a.jsonl", "{\"x\": 1, \"l\": [1]}\n{\"x\": 0.5, \"l\": []}\n");
  EXPECT_EQ(infer_schema({path}).to_json(),
            "{\"columns\": {\"x\": {\"dtype\": \"float64\"}, \"l\": {\"dtype\": \"int64\", "
            "\"ragged\": true}}}");
}

TEST(IngestJson, DuplicateKeysAtAnyDepthMakeABadRow) {
  std::string many;
  for (int i = 0; i < 40; ++i) many += "\"k" + std::to_string(i) + "\": 0, ";
  for (const std::string& value :
       {std::string("[{\"a\": 1, \"a\": 2}]"), std::string("[{\"a\": 1, \"\\u0061\": 2}]"),
        std::string("[{\"b\": {\"a\": 1, \"a\": 2}}]"), "[{" + many + "\"k7\": 1}]"}) {
    IngestOf of;
    const std::string text = "{\"x\": [{\"a\": 0}]}\n{\"x\": " + value + "}\n";
    EXPECT_THAT(
        of.error("a.jsonl", text, ErrorCode::corrupt),
        testing::MatchesRegex("a.jsonl: line 2 .row 1.: the key \"(a|k7)\" is duplicated in the "
                              "object that ends at byte [0-9]+: expected it once"))
        << value;
  }
  EXPECT_THAT(IngestOf().error("a.jsonl", "{\"x\": [{\"k\": 1, \"k\": 2}]}\n", ErrorCode::corrupt),
              HasSubstr("the key \"k\" is duplicated in the object that ends at byte 23"));
  IngestOf of;
  const Dataset ds = of.rows("a.jsonl", "{\"x\": [{\"a\": {\"a\": 1}, \"b\": {\"a\": 2}}]}\n");
  EXPECT_EQ(ds.size(), 1);
}

}  // namespace
}  // namespace tenfold

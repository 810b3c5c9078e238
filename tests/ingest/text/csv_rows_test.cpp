#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "ingest/ingest_of.hpp"

namespace tenfold {
namespace {

using test::IngestOf;
using test::texts;
using test::type_of;
using test::valid;
using test::values;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

TEST(IngestCsv, MakesAColumnForEachNameOfTheHeader) {
  IngestOf of;
  const Dataset ds = of.rows("a.csv",
                             "\xEF\xBB\xBFn,f,b,s,\"q,\"\"x\"\"\"\r\n1,0.5,true,a,1\r\n"
                             "-2,1e3,FALSE,\"b,\"\"c\"\"\r\nd\",2\r\n");
  EXPECT_EQ(type_of(ds, "n"), "int64");
  EXPECT_EQ(type_of(ds, "f"), "float64");
  EXPECT_EQ(type_of(ds, "b"), "bool");
  EXPECT_THAT(values<std::int64_t>(ds, "n"), ElementsAre(1, -2));
  EXPECT_THAT(values<double>(ds, "f"), ElementsAre(0.5, 1000.0));
  EXPECT_THAT(texts(ds, "s"), ElementsAre("a", "b,\"c\"\r\nd"));
  EXPECT_THAT(values<std::int64_t>(ds, "q,\"x\""), ElementsAre(1, 2));
  EXPECT_TRUE(verify(of.target()).ok());
}

TEST(IngestCsv, InfersTypesFromAllFields) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"1;2", "int64"},
      {"1;2.5", "float64"},
      {"1;", "int64?"},
      {"1;\"\"", "string"},
      {";", "float64?"},
      {"007;1", "string"},
      {"+1;1", "string"},
      {" 1;1", "string"},
      {"1 ;1", "string"},
      {"true;False", "bool"},
      {"true;1", "int64"},
      {"nan;1", "float64"},
      {"-INF;Infinity", "float64"},
      {".5;1.", "float64"},
      {"1e5;1", "float64"},
      {"9223372036854775808;1", "uint64"},
      {"9007199254740993;0.5", "string"},
      {"\"1\";\"2\"", "int64"},
      {"-0;0", "int64"},
      {"NA;1", "string"},
  };
  for (const auto& [fields, expected] : cases) {
    IngestOf of;
    std::string text(fields);
    text.replace(text.find(';'), 1, ",z\n");
    EXPECT_EQ(type_of(of.rows("a.csv", "x,y\n" + text + ",z\n"), "x"), expected) << fields;
  }
}

TEST(IngestCsv, UnquotedNaValuesAreNull) {
  IngestOf of;
  IngestOptions options;
  options.na_values = {"NA", "-"};
  const Dataset ds = of.rows("a.csv", "n,t\n1,NA\n-,\"NA\"\n", options);
  EXPECT_EQ(type_of(ds, "n"), "int64?");
  EXPECT_EQ(type_of(ds, "t"), "string?");
  EXPECT_THAT(valid(ds, "n"), ElementsAre(true, false));
  EXPECT_THAT(valid(ds, "t"), ElementsAre(false, true));
  IngestOf other;
  EXPECT_THAT(other.error("a.jsonl", "{\"x\": 1}\n", ErrorCode::invalid_argument, options),
              HasSubstr("na_values: expected CSV or TSV files"));
}

TEST(IngestCsv, TwoStarsMatchFoldersOfAnyDepthSortedByPath) {
  IngestOf of;
  const Path root = of.target().parent_path() / "logs";
  int number = 0;
  for (const char* name : {"b.csv", "a/c.csv", "a/x/d.csv"}) {
    std::filesystem::create_directories((root / name).parent_path());
    of.write(std::string("logs/") + name, "n\n" + std::to_string(number++) + "\n");
  }
  std::filesystem::create_directory_symlink(root, root / "a" / "loop");
  std::filesystem::create_symlink("gone", root / "a" / "latest");
  std::filesystem::create_symlink("itself", root / "itself");
  EXPECT_THAT(values<std::int64_t>(of.rows({root / "**" / "*.csv"}), "n"), ElementsAre(1, 2, 0));
  EXPECT_THAT(values<std::int64_t>(of.rows({root / "a" / "**" / "*.csv"}), "n"), ElementsAre(1, 2));
  EXPECT_THAT(values<std::int64_t>(of.rows({root / "a" / "*" / "*.csv"}), "n"), ElementsAre(0, 2));
}

TEST(IngestCsv, KeepsTheSourceTextOfPromotedValues) {
  IngestOf of;
  EXPECT_THAT(texts(of.rows("a.csv", "x\n1.50\ntrue\nabc\n007\n"), "x"),
              ElementsAre("1.50", "true", "abc", "007"));
  EXPECT_THAT(of.report.promotions, ElementsAre(Promotion{"x", "float64", "string"}));
}

TEST(IngestCsv, BoolsThatBecomeNumbersAreReportedInAnyOrder) {
  std::string late = "x\n";
  for (int i = 0; i < 300'000; ++i) late += std::to_string(i) + "\n";
  for (const std::string& text :
       {std::string("x\n1\ntrue\n"), std::string("x\ntrue\n1\n"), late + "true\n"}) {
    IngestOf of;
    EXPECT_EQ(type_of(of.rows("a.csv", text), "x"), "int64");
    EXPECT_THAT(of.report.promotions, ElementsAre(Promotion{"x", "bool", "int64"}));
  }
  IngestOf of;
  of.rows("a.csv", "x\n0.5\ntrue\n");
  EXPECT_THAT(of.report.promotions, ElementsAre(Promotion{"x", "bool", "float64"}));
  of.rows("a.jsonl", "{\"x\": [1]}\n{\"x\": [2, true]}\n");
  EXPECT_THAT(of.report.promotions,
              ElementsAre(Promotion{"x", "a list of bool", "a list of int64"}));
}

TEST(IngestCsv, ADataSetIsNotReplacedByOneWithoutColumns) {
  IngestOf of;
  EXPECT_EQ(of.rows("a.csv", "x\n1\n").size(), 1);
  EXPECT_THROW(ingest(std::vector<Path>(), of.target()), Error);
  EXPECT_THROW(infer_schema({}), Error);
  EXPECT_THROW(of.rows("b.csv", ""), Error);
  EXPECT_THROW(of.rows("b.jsonl", ""), Error);
  EXPECT_EQ(Dataset(of.target()).size(), 1);
}

TEST(IngestCsv, DistinguishesNullFromTheEmptyString) {
  IngestOf of;
  const Dataset ds = of.rows("a.csv", "s,n,f\na,1,0.5\n,,\n\"\",2,1\n");
  EXPECT_THAT(texts(ds, "s"), ElementsAre("a", "", ""));
  EXPECT_THAT(valid(ds, "s"), ElementsAre(1, 0, 1));
  EXPECT_THAT(valid(ds, "n"), ElementsAre(1, 0, 1));
  EXPECT_TRUE(std::isnan(values<double>(ds, "f")[1]));
}

TEST(IngestCsv, ReadsTabs) {
  IngestOf of;
  const Dataset ds = of.rows("a.tsv", "x\ty\n1\ta,b\n2\t\"c\td\"\n");
  EXPECT_THAT(texts(ds, "y"), ElementsAre("a,b", "c\td"));
}

TEST(IngestCsv, ReadsTheSeparatorThatIsPassed) {
  for (const char separator : {';', '|', '\t', ' ', '\x1f'}) {
    IngestOf of;
    IngestOptions options;
    options.separator = separator;
    std::string text = "x;y;\"z;1\"\n1;0,5;\"a;b\"\n2;;c\n";
    std::ranges::replace(text, ';', separator);
    const Dataset ds = of.rows("a.csv", text, options);
    EXPECT_THAT(values<std::int64_t>(ds, "x"), ElementsAre(1, 2)) << text;
    EXPECT_THAT(texts(ds, "y"), ElementsAre("0,5", "")) << text;
    const std::string name = std::string("z") + separator + "1";
    EXPECT_THAT(texts(ds, name), ElementsAre(std::string("a") + separator + "b", "c")) << text;
    EXPECT_EQ(infer_schema({of.target().parent_path() / "a.csv"}, 0, nullptr, SourceFormat::by_name,
                           {}, separator)
                  .columns()
                  .size(),
              3U);
  }
}

TEST(IngestCsv, AHeaderWithMoreOfAnotherSeparatorIsRefused) {
  const std::vector<std::array<const char*, 3>> cases = {
      {"a.csv", "x;y\n1;2\n",
       R"(expected names separated by ",", found 1 ";" and 0 ","; set the option separator to ";" if it separates the fields, otherwise to ",")"},
      {"a.csv", "x\ty\tz\n1\t2\t3\n", R"(found 2 "\t" and 0 ",")"},
      {"a.csv", "x|y\n1|2\n", R"(found 1 "|" and 0 ",")"},
      {"a.csv", "\"x\";\"y\"\n1;2\n", R"(found 1 ";" and 0 ",")"},
      {"a.csv", "day;price, EUR;town\n1;1,5;Rome\n", R"(found 2 ";" and 1 ",")"},
      {"a.csv", "x;y", R"(found 1 ";" and 0 ",")"},
      {"a.tsv", "x,y\n1,2\n", R"(expected names separated by "\t", found 1 "," and 0 "\t")"},
  };
  for (const auto& [name, text, message] : cases) {
    IngestOf of;
    EXPECT_THAT(
        of.error(name, text, ErrorCode::invalid_argument),
        testing::AllOf(StartsWith(std::string(name) + ": line 1: header: "), HasSubstr(message)))
        << text;
    IngestOptions skips;
    skips.on_error = OnError::skip;
    EXPECT_THAT(of.error(name, text, ErrorCode::invalid_argument, skips), HasSubstr(message));
  }
  // A separator other than the comma belongs to the names of columns if the header has at least as
  // many commas, or if the separator is quoted.
  for (const char* text : {"x;1,y\n1,2\n", "x,\"a;b;c\"\n1,2\n", "x\n1;2\n", "x,y|\n1,2\n"}) {
    IngestOf of;
    EXPECT_EQ(of.rows("a.csv", text).size(), 1) << text;
  }
  IngestOf of;
  IngestOptions options;
  options.separator = ',';
  EXPECT_THAT(texts(of.rows("a.csv", "x;y\n1;2\n", options), "x;y"), ElementsAre("1;2"));
}

TEST(IngestCsv, AFirstLineNamesTheSeparator) {
  for (const char* end : {"\n", "\r\n", "\r"}) {
    IngestOf of;
    std::string text = "\xEF\xBB\xBFsep=;\nx;y\n1;a\n2;b,c\n";
    for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 2) {
      text.replace(at, 1, end);
    }
    const Dataset ds = of.rows("a.csv", text);
    EXPECT_THAT(values<std::int64_t>(ds, "x"), ElementsAre(1, 2));
    EXPECT_THAT(texts(ds, "y"), ElementsAre("a", "b,c"));
  }
  IngestOf of;
  EXPECT_THAT(of.error("a.csv", "sep=;\nx;y\n1\n", ErrorCode::corrupt), HasSubstr("line 3"));
  IngestOptions options;
  options.separator = '|';
  EXPECT_THAT(
      of.error("a.csv", "sep=;\nx;y\n1;2\n", ErrorCode::invalid_argument, options),
      HasSubstr(R"(line 1: expected separator "|", the value of the option separator, found ";")"));
}

TEST(IngestCsv, ASeparatorIsOneCharacterThatFieldsDoNotUse) {
  EXPECT_EQ(separator_from(""), '\0');
  EXPECT_EQ(separator_from("\\t"), '\t');
  EXPECT_EQ(separator_from(";"), ';');
  for (const char* text : {"ab", "a", "1", "\"", ".", "-", "\n", "\xC3\xA9", ";;"}) {
    EXPECT_THROW(separator_from(text), Error) << text;
  }
  IngestOf of;
  IngestOptions options;
  options.separator = ';';
  EXPECT_THAT(of.error("a.jsonl", "{\"x\": 1}\n", ErrorCode::invalid_argument, options),
              HasSubstr("separator: expected CSV or TSV files"));
}

TEST(IngestCsv, NamesFileLineRowAndColumn) {
  IngestOf of;
  const std::string good = "x,y\n1,\"a\nb\"\n\n";
  EXPECT_EQ(of.error("a.csv", good + "1\n", ErrorCode::corrupt),
            "a.csv: line 5 (row 1): expected 2 fields, found 1");
  EXPECT_EQ(of.error("a.csv", good + "1,2,3\n", ErrorCode::corrupt),
            "a.csv: line 5 (row 1): expected 2 fields, found 3");
  EXPECT_EQ(of.error("a.csv", good + "1,\"a\"b\n", ErrorCode::corrupt),
            "a.csv: line 5 (row 1): expected a delimiter after a quoted field, found "
            "\"\\\"a\\\"b\"");
  EXPECT_THAT(of.error("a.csv", good + "1,\"a\n2,b\n", ErrorCode::corrupt),
              HasSubstr("line 5 (row 1): expected a quote that ends the field"));
  EXPECT_EQ(of.error("a.csv", "x,y,x\n1,2,3\n", ErrorCode::invalid_argument),
            "a.csv: line 1: header: expected distinct names, found \"x\" twice; rename one of "
            "the columns");
  IngestOptions options;
  options.schema = Schema::from_json("{\"columns\": {\"x\": {\"dtype\": \"int8\"}}}", "test");
  EXPECT_EQ(of.error("a.csv", "x,y\n1,2\n300,4\n", ErrorCode::invalid_argument, options),
            "a.csv: line 3 (row 1), column \"x\": expected a number that fits int8, found \"300\"");
  options.schema = Schema::from_json("{\"columns\": {\"x\": {\"dtype\": \"float16\"}}}", "test");
  EXPECT_EQ(of.error("a.csv", "x\n1\ninf\nnan\n7e4\n", ErrorCode::invalid_argument, options),
            "a.csv: line 5 (row 3), column \"x\": expected a number that fits float16, found "
            "\"7e4\"");
}

TEST(IngestCsv, TextThatIsNotUtf8NamesAConversion) {
  IngestOf of;
  const std::string latin1 =
      "; convert the file to UTF-8, for example with iconv -f LATIN1 -t UTF-8";
  EXPECT_EQ(of.error("a.csv", "x,y\n1,caf\xE9\n", ErrorCode::corrupt),
            "a.csv: line 2 (row 0), column \"y\": expected UTF-8, found other bytes" + latin1);
  EXPECT_EQ(of.error("a.csv", "x,caf\xE9\n1,2\n", ErrorCode::corrupt),
            "a.csv: line 1: header: expected UTF-8, found other bytes" + latin1);
  EXPECT_EQ(of.error("a.jsonl", "{\"x\": \"\xE9\"}\n", ErrorCode::corrupt),
            "a.jsonl: line 1 (row 0): expected UTF-8 in a string, found \"\\\"\\xe9\\\"}\" at "
            "byte 7" +
                latin1);
  for (const std::string name : {"a.csv", "a.jsonl", "a.json"}) {
    for (const std::string text : {"\xFF\xFE{", "\xFE\xFF{"}) {
      EXPECT_EQ(of.error(name, text, ErrorCode::corrupt),
                name +
                    ": expected UTF-8, found UTF-16; convert the file to UTF-8, for example "
                    "with iconv -f UTF-16 -t UTF-8");
    }
  }
}

TEST(IngestCsv, SkipsRowsOfAnotherNumberOfFields) {
  IngestOf of;
  const Dataset ds = of.rows("a.csv", "x,y\n1,2\n3\n\"4\"5,6\n7,8\n", {.on_error = OnError::skip});
  EXPECT_THAT(values<std::int64_t>(ds, "x"), ElementsAre(1, 7));
  EXPECT_EQ(of.report.num_bad_rows, 2U);
}

TEST(IngestCsv, AQuoteInTheMiddleOfAFieldIsACharacter) {
  IngestOf of;
  EXPECT_THAT(texts(of.rows("a.csv", "x,y\n5\" disk,1\na\"b\"c,2\n"), "x"),
              ElementsAre("5\" disk", "a\"b\"c"));
}

TEST(IngestCsv, AHeaderAloneMakesColumnsWithoutRows) {
  IngestOf of;
  const Dataset ds = of.rows("a.csv", "x,y\n");
  EXPECT_EQ(ds.size(), 0);
  EXPECT_EQ(type_of(ds, "x"), "float64?");
  EXPECT_EQ(of.rows("b.csv", "x,y").schema().size(), 2U);
  IngestOf empty;
  EXPECT_EQ(empty.rows("c.csv", "").schema().size(), 0U);
}

TEST(IngestCsv, SplitsLargeFilesAtRecords) {
  // Every block contains quoted line feeds, so that a split at one of them would be detected.
  std::string text = "i,s\n";
  for (int i = 0; i < 150'000; ++i) {
    text += std::to_string(i) + ",\"a\n" + std::to_string(i) + ",\"\"\n\"\n";
  }
  IngestOf of;
  const Dataset ds = of.rows("a.csv", text, {.num_threads = 3});
  ASSERT_EQ(ds.size(), 150'000);
  const std::vector<std::string> s = texts(ds, "s");
  const std::vector<std::int64_t> numbers = values<std::int64_t>(ds, "i");
  for (std::size_t i = 0; i < s.size(); i += 997) {
    ASSERT_EQ(numbers[i], static_cast<std::int64_t>(i));
    ASSERT_EQ(s[i], "a\n" + std::to_string(i) + ",\"\n");
  }
}

TEST(IngestCsv, PromotesWhenALaterRowNeedsIt) {
  std::string text = "x,y\n";
  for (int i = 0; i < 300'000; ++i) text += std::to_string(i) + ",1\n";
  IngestOf of;
  const Dataset ds = of.rows("a.csv", text + "0.25,\n");
  EXPECT_EQ(values<double>(ds, "x")[300'000], 0.25);
  EXPECT_EQ(type_of(ds, "y"), "int64?");
  EXPECT_THAT(of.report.promotions, ElementsAre(Promotion{"x", "int64", "float64"}));
}

TEST(IngestCsv, ReadsLinesThatEndWithACarriageReturn) {
  for (const char* const last : {"", "\r", "\r\r"}) {
    IngestOf of;
    const std::string text = std::string("x,s\r1,a\r2,\"b\rc\"\r\r3,\"d\ne\"") + last;
    const Dataset ds = of.rows("a.csv", text);
    EXPECT_THAT(values<std::int64_t>(ds, "x"), ElementsAre(1, 2, 3));
    EXPECT_THAT(texts(ds, "s"), ElementsAre("a", "b\rc", "d\ne"));
  }
  std::string large = "x,y\r";
  for (int i = 0; i < 300'000; ++i) large += std::to_string(i) + ",\"1\r\"\r";
  IngestOf of;
  const Dataset ds = of.rows("a.csv", large);
  ASSERT_EQ(ds.size(), 300'000);
  EXPECT_EQ(values<std::int64_t>(ds, "x")[299'999], 299'999);
  IngestOf other;
  EXPECT_EQ(other.error("b.csv", "x,y\r1,2\r\r3\r", ErrorCode::corrupt),
            "b.csv: line 4 (row 1): expected 2 fields, found 1");
}

TEST(IngestCsv, LineFeedsAfterAHeaderThatEndsWithACarriageReturnAreRefused) {
  for (const std::string text :
       {"a\rb\n1\n2\n", "a,b\r1,2\n3,4\n", "a,b\r1,2\r\n3,4\r\n", "a,b\r\"1\r\n\",2\r3,4\n5,6\r"}) {
    IngestOf of;
    EXPECT_EQ(
        of.error("a.csv", text, ErrorCode::corrupt, {.on_error = OnError::skip}),
        "a.csv: expected a carriage return at the end of each record, as after the header, found "
        "a line feed; convert the line ends")
        << text;
  }
}

TEST(IngestCsv, ARecordWithAnotherNumberOfFieldsIsMalformed) {
  for (const std::string rows : {"1,2\n", "", "0.5,x\n"}) {
    const std::string line = rows.empty() ? "line 2 (row 0)" : "line 3 (row 1)";
    const auto error = [&](const std::string& record) {
      IngestOf of;
      return of.error("a.csv", "x,y\n" + rows + record + "\n", ErrorCode::corrupt);
    };
    EXPECT_EQ(error("1"), "a.csv: " + line + ": expected 2 fields, found 1");
    EXPECT_EQ(error("word"), "a.csv: " + line + ": expected 2 fields, found 1");
    EXPECT_EQ(error("   "), "a.csv: " + line + ": expected 2 fields, found 1");
    EXPECT_EQ(error("word,2,3"), "a.csv: " + line + ": expected 2 fields, found 3");
    EXPECT_THAT(error("word,\"open"),
                StartsWith("a.csv: " + line + ": expected a quote that ends the field"));
  }
}

TEST(IngestCsv, SkipsBlankLinesBeforeTheHeader) {
  for (const std::string blanks : {"\n", "\r\n\r\n", "  \n\t\n", "\xEF\xBB\xBF\n", "\r\r"}) {
    IngestOf of;
    const std::string end = blanks == "\r\r" ? "\r" : "\n";
    const Dataset ds = of.rows("a.csv", blanks + " x,y" + end + "1,2" + end);
    EXPECT_THAT(values<std::int64_t>(ds, " x"), ElementsAre(1)) << blanks;
  }
  IngestOf of;
  EXPECT_EQ(of.error("b.csv", "\n\nx,x\n", ErrorCode::invalid_argument),
            "b.csv: line 3: header: expected distinct names, found \"x\" twice; rename one of the "
            "columns");
  EXPECT_EQ(of.error("c.csv", "\n \nx\n1,2\n", ErrorCode::corrupt),
            "c.csv: line 4 (row 0): expected 1 field, found 2");
  EXPECT_EQ(of.rows("d.csv", "\n \n").schema().size(), 0U);
}

TEST(IngestCsv, AnIntegralFloatFitsAGivenIntegerColumn) {
  Column column;
  column.path = {"x"};
  column.dtype = DType::int8;
  IngestOf of;
  const IngestOptions options = {.schema = Schema({column})};
  EXPECT_THAT(values<std::int8_t>(of.rows("a.csv", "x\n1.0\n-1.28e2\n2\n", options), "x"),
              ElementsAre(1, -128, 2));
  IngestOf other;
  EXPECT_EQ(other.error("a.csv", "x\n1.5\n", ErrorCode::invalid_argument, options),
            "a.csv: line 2 (row 0), column \"x\": expected int8, found \"1.5\"");
  for (const char* const value : {"128.0", "1e300", "-129.0"}) {
    EXPECT_EQ(other.error("a.csv", std::string("x\n") + value + "\n", ErrorCode::invalid_argument,
                          options),
              std::string("a.csv: line 2 (row 0), column \"x\": expected a number that fits int8, "
                          "found \"") +
                  value + "\"");
  }
}

TEST(IngestCsv, JoinsFilesByTheNamesOfTheirHeaders) {
  IngestOf of;
  const Path a = of.write("a.csv", "x,y\n1,2\n");
  const Path b = of.write("b.csv", "y,z\n3,4\n");
  const Dataset ds = of.rows({a, b});
  EXPECT_THAT(values<std::int64_t>(ds, "y"), ElementsAre(2, 3));
  EXPECT_THAT(valid(ds, "x"), ElementsAre(1, 0));
  EXPECT_THAT(valid(ds, "z"), ElementsAre(0, 1));
}

TEST(IngestCsv, AValueUnderTheNameOfARecordOfAnotherFileIsABadRow) {
  IngestOf of;
  const std::vector<Path> files = {of.write("x.jsonl", "{\"a\": {\"b\": 1}}\n"),
                                   of.write("y.csv", "a,c\n,1\n5,2\n")};
  const Dataset ds = of.rows(files, {.on_error = OnError::collect});
  EXPECT_EQ(of.report.num_bad_rows, 1U);
  EXPECT_EQ(ds.size(), 2);
  EXPECT_THAT(valid(ds, "c"), ElementsAre(0, 1));
  std::ifstream bad_rows(of.target() / "bad_rows.jsonl");
  const std::string text((std::istreambuf_iterator<char>(bad_rows)), {});
  EXPECT_THAT(text, HasSubstr(R"(line 3 (row 1), column \"a\": expected an object, found \"5\")"));
}

TEST(IngestText, RefusesAColumnNamedLikeTheValidityOfAnother) {
  const std::string expected =
      "column \"a\": the validity of its rows is named \"a.valid\": expected no other column of "
      "that "
      "name, found one; rename \"a\" or \"a.valid\"";
  EXPECT_THAT(IngestOf().error("a.csv", "a,a.valid\n1,2\n,3", ErrorCode::invalid_argument),
              HasSubstr(expected));
  EXPECT_THAT(IngestOf().error("a.jsonl", "{\"a.valid\": 2, \"a\": 1}\n{\"a.valid\": 3}\n",
                               ErrorCode::invalid_argument),
              HasSubstr(expected));
  Column nullable{.path = {"a"}, .dtype = DType::int64, .nullable = true};
  const Column other{.path = {"a.valid"}, .dtype = DType::int64};
  EXPECT_THAT(IngestOf().error("a.csv", "a,a.valid\n1,2\n", ErrorCode::invalid_argument,
                               {.schema = Schema({nullable, other})}),
              HasSubstr(expected));
  IngestOf of;
  const Dataset ds = of.rows("a.csv", "a,a.valid\n1,2\n4,3\n");
  EXPECT_THAT(values<std::int64_t>(ds, "a.valid"), ElementsAre(2, 3));
}

TEST(IngestCsv, AColumnOfTheSchemaThatIsMissingMayBeMisspelled) {
  const IngestOptions options{.schema = Schema({{.path = {"x"}, .dtype = DType::int64}})};
  const std::pair<const char*, const char*> sources[] = {{"a.csv", "y\n1\n"},
                                                         {"a.jsonl", "{\"y\": 1}\n"}};
  for (const auto& [name, text] : sources) {
    EXPECT_THAT(IngestOf().error(name, text, ErrorCode::invalid_argument, options),
                HasSubstr("column \"x\": expected a value, found none; correct the name, or make "
                          "the column nullable in the schema"));
  }
}

}  // namespace
}  // namespace tenfold

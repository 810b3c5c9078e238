#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tenfold/error.hpp>

#include "codecs/json/json.hpp"

namespace tenfold::codecs {
namespace {

std::string text_of(JsonStyle style) {
  JsonWriter writer(style);
  writer.begin_object();
  writer.key("a");
  writer.begin_array();
  writer.integer(-1);
  writer.number(2.0);
  writer.begin_array();
  writer.end_array();
  writer.null();
  writer.end_array();
  writer.key("\xC3\xA9");
  writer.string("\xF0\x9F\x98\x80\x7F\n");
  writer.key("c");
  writer.begin_object();
  writer.end_object();
  writer.key("d");
  writer.boolean(true);
  writer.end_object();
  return writer.take();
}

TEST(JsonWriter, PythonStyleEqualsJsonDumps) {
  EXPECT_EQ(text_of(JsonStyle::python),
            R"({"a": [-1, 2.0, [], null], "\u00e9": "\ud83d\ude00\u007f\n", "c": {}, "d": true})");
}

TEST(JsonWriter, CompactStyleOmitsBlanks) {
  EXPECT_EQ(text_of(JsonStyle::python_compact),
            R"({"a":[-1,2.0,[],null],"\u00e9":"\ud83d\ude00\u007f\n","c":{},"d":true})");
}

TEST(JsonWriter, Utf8StyleKeepsNonAsciiCharacters) {
  EXPECT_EQ(
      text_of(JsonStyle::utf8_compact),
      "{\"a\":[-1,2.0,[],null],\"\xC3\xA9\":\"\xF0\x9F\x98\x80\x7F\\n\",\"c\":{},\"d\":true}");
}

TEST(JsonWriter, ALoneSurrogateIsEscapedInEveryStyle) {
  for (const JsonStyle style :
       {JsonStyle::python, JsonStyle::python_compact, JsonStyle::utf8_compact}) {
    JsonWriter writer(style);
    writer.string("x\xED\xA0\x80");
    EXPECT_EQ(writer.take(), "\"x\\ud800\"");
  }
}

TEST(JsonWriter, BytesThatAreNotUtf8AreRefusedByPosition) {
  JsonWriter writer(JsonStyle::python);
  try {
    writer.string("ab\xFF");
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_STREQ(
        error.what(),
        "json: string \"ab\\xff\": cannot be encoded: expected utf-8, found \"\\xff\" at byte 2");
  }
}

TEST(JsonWriter, BigIntegersMustHaveTheSyntaxOfJson) {
  for (const char* digits : {"", "-", "1x", "0x1F", "007", "+5", "1.5", "--1", "1, 2"}) {
    EXPECT_THROW(JsonWriter(JsonStyle::python).big_integer(digits), Error) << digits;
  }
  for (const char* digits : {"0", "-7", "-18446744073709551616"}) {
    JsonWriter writer(JsonStyle::python);
    writer.big_integer(digits);
    EXPECT_EQ(writer.take(), digits);
  }
}

TEST(JsonWriter, DocumentsNestAsDeepAsTheyCanBeRead) {
  JsonWriter writer(JsonStyle::python_compact);
  for (std::size_t i = 0; i < kMaxJsonDepth / 2; ++i) {
    writer.begin_object();
    writer.key("a");
    writer.begin_array();
  }
  for (const bool is_object : {true, false}) {
    try {
      is_object ? writer.begin_object() : writer.begin_array();
      FAIL() << "expected an error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unsupported);
      EXPECT_STREQ(error.what(),
                   "nested too deeply: expected at most 512 levels of json, found more");
    }
  }
  for (std::size_t i = 0; i < kMaxJsonDepth / 2; ++i) {
    writer.end_array();
    writer.end_object();
  }
  writer.integer(1);  // levels that have ended do not count
  EXPECT_TRUE(writer.take().ends_with("}]}]},1"));
}

TEST(JsonWriter, ValuesOfCppTypesAreWrittenByTheirType) {
  JsonWriter writer(JsonStyle::python);
  writer.begin_object();
  writer.member("flag", true);
  writer.member("count", std::size_t{3});
  writer.member("text", "a");
  writer.member("none", std::optional<std::string>());
  writer.member("lengths", std::vector<std::int64_t>{2, -1});
  writer.member("names", std::vector<std::optional<std::string>>{"x", std::nullopt});
  writer.end_object();
  EXPECT_EQ(writer.take(), R"({"flag": true, "count": 3, "text": "a", "none": null, )"
                           R"("lengths": [2, -1], "names": ["x", null]})");
}

TEST(JsonWriter, LimitsOfIntegersAreWrittenExactly) {
  JsonWriter writer(JsonStyle::python);
  writer.begin_array();
  writer.integer(std::numeric_limits<std::int64_t>::min());
  writer.value(std::numeric_limits<std::uint64_t>::max());
  writer.big_integer("123456789012345678901234567890");
  writer.end_array();
  EXPECT_EQ(writer.take(),
            "[-9223372036854775808, 18446744073709551615, 123456789012345678901234567890]");
}

}  // namespace
}  // namespace tenfold::codecs

#include "codecs/yaml.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include <tenfold/error.hpp>

#include "core/value/value_json.hpp"

namespace tenfold {
namespace {

using testing::HasSubstr;

std::string json_of(std::string_view yaml) {
  ValueBuilder builder("y");
  codecs::parse_yaml(yaml, "y", builder);
  return to_json(builder.take());
}

std::string refusal(std::string_view yaml) {
  try {
    return "read as " + json_of(yaml);
  } catch (const Error& error) {
    return error.code() == ErrorCode::corrupt ? error.what() : "another code";
  }
}

// Most valid documents have the form of the output of PyYAML's dump().

TEST(Yaml, ReadsNestedBlocks) {
  EXPECT_EQ(
      json_of("a: 1\nb:\n  c: x\n  d:\n  - 1\n  - e: 2\n    f: 3\n  - - 4\n    - 5\ng: null\n"),
      R"({"a": 1, "b": {"c": "x", "d": [1, {"e": 2, "f": 3}, [4, 5]]}, "g": null})");
  EXPECT_EQ(json_of("---\na: 1\nb:\n- 2\n"), R"({"a": 1, "b": [2]})");
  EXPECT_EQ(json_of("- a\n-\n- b: {}\n  c: []\n"), R"(["a", null, {"b": {}, "c": []}])");
}

TEST(Yaml, ReadsPlainScalars) {
  EXPECT_EQ(json_of("- true\n- false\n- null\n- ~\n- -12\n- 0.5\n- 1.0e+20\n- .inf\n- 007\n- a b\n"
                    "- 1.5E-3\n- 1.0e5\n- 1.5E3\n- 123456789012345678901234567890\n"),
            R"([true, false, null, null, -12, 0.5, 1e+20, Infinity, "007", "a b", )"
            R"(0.0015, "1.0e5", "1.5E3", 123456789012345678901234567890])");
}

TEST(Yaml, ReadsQuotedStringsOverSeveralLines) {
  EXPECT_EQ(json_of("a: 'it''s\n\n  two lines'\n"), R"({"a": "it's\ntwo lines"})");
  EXPECT_EQ(json_of("a: \"x\\\n  \\ y\\u00e9\\U0001F600\\n\"\nb: 'one\n  line'\n"),
            R"({"a": "x y\u00e9\ud83d\ude00\n", "b": "one line"})");
  // A string that does not end on its line is a value, not a key.
  EXPECT_EQ(json_of("- 'x: a\n  b'\n- \"y: a\\\n  \\ b\"\n- c: 'it''s:\n    d'\n"),
            R"(["x: a b", "y: a b", {"c": "it's: d"}])");
  EXPECT_EQ(json_of("'a\n  b'\n"), R"("a b")");
  EXPECT_EQ(json_of("a:\n  'it''s\n  b'\n"), R"({"a": "it's b"})");
  EXPECT_EQ(json_of("- 'it''s': 1\n- \"\\\"\": 2\n"), R"([{"it's": 1}, {"\"": 2}])");
  EXPECT_EQ(json_of("'': 1\n'a: b': 2\n\"\\x00\": 3\n"), R"({"": 1, "a: b": 2, "\u0000": 3})");
}

TEST(Yaml, ReadsLongKeysAndLongPlainScalars) {
  EXPECT_EQ(json_of("? key\n: value\n? other\n:\n- 1\n"), R"({"key": "value", "other": [1]})");
  EXPECT_EQ(json_of("a: one\n  two\n  three\nb: 1\n"), R"({"a": "one two three", "b": 1})");
  EXPECT_EQ(json_of("one\n  two\nthree\n...\n"), R"("one two three")");
}

TEST(Yaml, ReadsCollectionsOnTheLineOfAColonBelowALongKey) {
  EXPECT_EQ(json_of("? key\n: a: 1\n  b:\n    c: 2\nd: 3\n"),
            R"({"key": {"a": 1, "b": {"c": 2}}, "d": 3})");
  EXPECT_EQ(json_of("? key\n: - 1\n  - 2\n? other\n: one\n  two\n"),
            R"({"key": [1, 2], "other": "one two"})");
  EXPECT_EQ(json_of("a:\n  ? key\n  : ? inner\n    : - - b: 'x: y'\n  c: d\n"),
            R"({"a": {"key": {"inner": [[{"b": "x: y"}]]}, "c": "d"}})");
}

TEST(Yaml, ReadsLinesThatEndWithCarriageReturns) {
  EXPECT_EQ(json_of("---\r\na: 1\r\nb:\r\n- x\r\n- 'y\r\n  z'\r\n"),
            R"({"a": 1, "b": ["x", "y z"]})");
  EXPECT_EQ(json_of("a: x\rb: \"\\r\"\r"), R"({"a": "x", "b": "\r"})");
}

TEST(Yaml, ReadsTheMarkerOfTheDocumentsEnd) {
  EXPECT_EQ(json_of("a: 1\n...\n"), R"({"a": 1})");
  EXPECT_EQ(json_of("a:\n- 1\n- b:\n..."), R"({"a": [1, {"b": null}]})");
  EXPECT_EQ(json_of("---\n- 1\n... \n\n"), "[1]");
  EXPECT_EQ(json_of("x\n...\n"), R"("x")");
  EXPECT_EQ(json_of("a: one\n  ...\n"), R"({"a": "one ..."})");
  EXPECT_THAT(refusal("a: 1\n...\nb: 2\n"), HasSubstr("expected one document, found \"b: 2\""));
}

TEST(Yaml, RefusesTheMarkerOfADocumentsStartExceptAsTheFirstLine) {
  for (const char* text :
       {"--- {a: 1}\n", "--- x\n", "---\n--- x\n", "x\n---\ny\n", "- 1\n---\n"}) {
    EXPECT_THAT(refusal(text), HasSubstr("expected \"---\" only as the first line")) << text;
  }
  EXPECT_EQ(json_of("---x: 1\n"), R"({"---x": 1})");
}

TEST(Yaml, ReadsFlowOnOneLine) {
  EXPECT_EQ(json_of("a: [0, 24, 'x, y', {b: null, c: []}]\n"),
            R"({"a": [0, 24, "x, y", {"b": null, "c": []}]})");
}

TEST(Yaml, RefusesAnchorsAliasesTagsAndBlockScalars) {
  EXPECT_THAT(refusal("a: &x [1]\nb: *x\n"), HasSubstr("without anchor, alias"));
  EXPECT_THAT(refusal("b: *x\n"), HasSubstr("at line 1"));
  EXPECT_THAT(refusal("a: !!python/object:os.system x\n"), HasSubstr("without anchor"));
  EXPECT_THAT(refusal("a: |\n  text\n"), HasSubstr("without anchor"));
}

TEST(Yaml, RefusesMalformedDocuments) {
  for (const char* text : {"",
                           "\n \n",
                           "a: 'x\n",
                           "a: \"\\q\"\n",
                           "a: \"\\ud800\"\n",
                           "a: b: c\n",
                           "a: 1\n  b: 2\n",
                           "- a\nb: 1\n",
                           "a: [1\n",
                           "a: [1, 2]x\n",
                           "a: 1 # c\n",
                           "? a\nb\n",
                           "a: {b}\n",
                           "\xFF: 1\n",
                           "a: 1\n- b\n",
                           "a\nb: 1\n",
                           "? a\n: b: 1\n   c: 2\n",
                           "a: 'b\xE2\x80\xA8  c'\n",
                           "a: b\xC2\x85\n",
                           "- 1\n- \xE2\x80\xA9\n"}) {
    EXPECT_THAT(refusal(text), HasSubstr("y: invalid or unsupported YAML")) << text;
  }
  EXPECT_THAT(refusal("a: 1\nb:\n  c: 2\n  \"c\": 3\n"),
              HasSubstr("expected each key once, found \"c\" again at line 4"));
  EXPECT_THAT(refusal("a: 1\nb: {c: 2, c: 3}\n"), HasSubstr("found \"c\" again at line 2"));
  EXPECT_THAT(refusal("a: {c: 1}\nb: {c: 1}\nc:\n- a: 1\n- a: 1\n"), HasSubstr("read as"));
}

TEST(Yaml, LimitsNesting) {
  EXPECT_THAT(refusal("a: " + std::string(1000, '[')), HasSubstr("at most 100 levels"));
  std::string dashes;
  for (int i = 0; i < 1000; ++i) dashes += "- ";
  EXPECT_THAT(refusal(dashes + "x\n"), HasSubstr("at most 100 levels"));
}

}  // namespace
}  // namespace tenfold

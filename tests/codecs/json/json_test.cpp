#include "codecs/json/json.hpp"

#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tenfold/error.hpp>

namespace tenfold::codecs {
namespace {

/// Records the events as text: "{ k(a) i(1) }".
class Recorder final : public JsonHandler {
 public:
  void null() override { add("null"); }
  void boolean(bool value) override { add(value ? "true" : "false"); }
  void integer(std::int64_t value) override { add("i(" + std::to_string(value) + ")"); }
  void big_integer(std::string_view digits) override { add("b(" + std::string(digits) + ")"); }
  void number(double value) override { add("d(" + std::to_string(value) + ")"); }
  void string(std::string_view value) override { add("s(" + std::string(value) + ")"); }
  void begin_object() override { add("{"); }
  void key(std::string_view value) override { add("k(" + std::string(value) + ")"); }
  void end_object() override { add("}"); }
  void begin_array() override { add("["); }
  void end_array() override { add("]"); }

  std::string events;

 private:
  void add(const std::string& event) { events += (events.empty() ? "" : " ") + event; }
};

std::string events_of(std::string_view text) {
  Recorder recorder;
  parse_json(text, "x.json", recorder);
  return recorder.events;
}

/// The message of the Error(corrupt) of the parser; empty if there is none.
std::string message_of(std::string_view text) {
  try {
    events_of(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::corrupt);
    return error.what();
  }
  return "";
}

std::string nested(std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

const std::string kSmallDocument =
    "\xEF\xBB\xBF{\"w\": {\"dtype\": \"F32\", \"shape\": [3, -4], \"x\": 1.5e-3}, "
    "\"caf\xC3\xA9\\u00e9\\ud83d\\ude00\\n\": [true, false, null, NaN, -Infinity, "
    "123456789012345678901234567890]}";

TEST(Json, EventsFollowTheOrderOfTheText) {
  EXPECT_EQ(events_of(R"( {"a": [1, -2, 2.5], "b": {}, "c": [], "d": null, "e": [true, false]} )"),
            "{ k(a) [ i(1) i(-2) d(2.500000) ] k(b) { } k(c) [ ] k(d) null k(e) [ true false ] }");
}

TEST(Json, IntegersAreExactWithin64BitsAndStringsBeyond) {
  EXPECT_EQ(events_of("[9223372036854775807, -9223372036854775808, -0]"),
            "[ i(9223372036854775807) i(-9223372036854775808) i(0) ]");
  EXPECT_EQ(events_of("[9223372036854775808, -9223372036854775809, 99999999999999999999]"),
            "[ b(9223372036854775808) b(-9223372036854775809) b(99999999999999999999) ]");
}

TEST(Json, AByteOrderMarkIsSkipped) { EXPECT_EQ(events_of("\xEF\xBB\xBF[1]"), "[ i(1) ]"); }

TEST(Json, EscapesAreDecodedAndPairsOfSurrogatesJoined) {
  EXPECT_EQ(events_of(R"("a\"\\\/\b\f\n\r\t\u0041\u00e9\ud83d\ude00z")"),
            "s(a\"\\/\b\f\n\r\tA\xC3\xA9\xF0\x9F\x98\x80z)");
}

TEST(Json, LoneSurrogateEscapesAreKeptInThreeBytes) {
  EXPECT_EQ(events_of(R"("\ud800")"), "s(\xED\xA0\x80)");
  EXPECT_EQ(events_of(R"("\udc00\ud800\u0041")"),
            "s(\xED\xB0\x80\xED\xA0\x80"
            "A)");
  EXPECT_EQ(events_of(R"("\ud800\ud83d\ude00")"), "s(\xED\xA0\x80\xF0\x9F\x98\x80)");
}

TEST(Json, AStringMayHoldANulCharacter) {
  EXPECT_EQ(events_of(R"("a\u0000b")"), std::string("s(a\0b)", 6));
}

TEST(Json, StringsOfEveryLengthWithASpecialCharacterAnywhereAreRead) {
  for (std::size_t size = 0; size < 40; ++size) {
    for (const std::string special : {"", "\\n", "\xC3\xA9", "\x7F"}) {
      for (std::size_t at = 0; at <= size; ++at) {
        std::string raw(size, 'x');
        raw.insert(at, special);
        std::string decoded(size, 'x');
        decoded.insert(at, special == "\\n" ? "\n" : special);
        EXPECT_EQ(events_of("\"" + raw + "\""), "s(" + decoded + ")");
      }
    }
  }
}

TEST(Json, NestingOf512IsReadAndOf513Refused) {
  EXPECT_EQ(events_of(nested(512)).size(), 2 * 2 * 512 - 1);
  EXPECT_EQ(message_of(nested(513)),
            "x.json: nesting is too deep: expected at most 512 levels, found more at byte 512");
  std::string objects;
  for (int i = 0; i < 513; ++i) objects += "{\"a\":";
  EXPECT_NE(message_of(objects).find("expected at most 512 levels"), std::string::npos);
}

TEST(Json, AMillionOpenBracketsAreRefusedAtTheFirstThatIsTooDeep) {
  EXPECT_EQ(message_of(std::string(1'000'000, '[')),
            "x.json: nesting is too deep: expected at most 512 levels, found more at byte 512");
}

TEST(Json, TheByteOffsetCountsTheByteOrderMark) {
  EXPECT_EQ(message_of("\xEF\xBB\xBF[}"),
            "x.json: not valid json: expected a value, found \"}\" at byte 4");
}

TEST(Json, EveryProperPrefixOfADocumentIsRefused) {
  ASSERT_EQ(message_of(kSmallDocument), "");
  for (std::size_t size = 0; size < kSmallDocument.size(); ++size) {
    EXPECT_NE(message_of(kSmallDocument.substr(0, size)), "") << size;
  }
}

TEST(Json, ADocumentWithAFlippedByteParsesOrIsCorrupt) {
  std::mt19937 random(1);
  int refused = 0;
  for (int i = 0; i < 500; ++i) {
    std::string text = kSmallDocument;
    text[random() % text.size()] ^= static_cast<char>(1 + random() % 255);
    refused += message_of(text).empty() ? 0 : 1;
  }
  EXPECT_GT(refused, 100);
}

TEST(Json, AnErrorOfTheHandlerEndsTheParse) {
  class Refuser final : public JsonHandler {
   public:
    void null() override { throw Error(ErrorCode::unsupported, "no nulls here"); }
    void boolean(bool) override { saw_more = true; }
    void integer(std::int64_t) override {}
    void big_integer(std::string_view) override {}
    void number(double) override {}
    void string(std::string_view) override {}
    void begin_object() override {}
    void key(std::string_view) override {}
    void end_object() override {}
    void begin_array() override {}
    void end_array() override {}
    bool saw_more = false;
  };
  Refuser refuser;
  EXPECT_THROW(parse_json("[null, true]", "x.json", refuser), Error);
  EXPECT_FALSE(refuser.saw_more);
}

}  // namespace
}  // namespace tenfold::codecs

#include "base/text.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tenfold::base {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using namespace std::string_view_literals;

TEST(Quote, KeepsPlainTextAndUtf8) {
  EXPECT_EQ(quote("encoder.weight"), "\"encoder.weight\"");
  EXPECT_EQ(quote("\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"),
            "\"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\"");
}

TEST(Quote, EscapesCharactersThatTerminalsOrReadersMisinterpret) {
  EXPECT_EQ(quote("a\"b\\c\n\0\x1b[0m\x7f"sv), R"("a\"b\\c\x0a\x00\x1b[0m\x7f")");
  EXPECT_EQ(quote("\xC2\x9B"), R"("\xc2\x9b")");
}

TEST(Quote, EscapesEachByteThatIsNotUtf8) {
  EXPECT_EQ(quote("a\xFFz"), R"("a\xffz")");
  EXPECT_EQ(quote("\xED\xA0\x80"), R"("\xed\xa0\x80")");
  EXPECT_EQ(quote("\xE2\x82"), R"("\xe2\x82")");
}

TEST(Quote, CutsLongTextBetweenCharacters) {
  EXPECT_EQ(quote("abcdef", 4), "\"abcd...\"");
  EXPECT_EQ(quote("abc\xC3\xA9", 4), "\"abc...\"");
  EXPECT_EQ(quote("abcd", 4), "\"abcd\"");
}

TEST(Utf8, RefusesOverlongFormsSurrogatesAndTruncation) {
  EXPECT_TRUE(is_utf8(""));
  EXPECT_TRUE(is_utf8("\xF4\x8F\xBF\xBF"));
  EXPECT_FALSE(is_utf8("\xC0\x80"));
  EXPECT_FALSE(is_utf8("\xE0\x9F\xBF"));
  EXPECT_FALSE(is_utf8("\xED\xA0\x80"));
  EXPECT_FALSE(is_utf8("\xF0\x8F\xBF\xBF"));
  EXPECT_FALSE(is_utf8("\xF4\x90\x80\x80"));
  EXPECT_FALSE(is_utf8("\x80"));
  EXPECT_FALSE(is_utf8("a\xE2\x82"));
  EXPECT_TRUE(is_utf8("eight ch\xC3\xA9racters"));
  EXPECT_FALSE(is_utf8("eight ch\xFFracters"));
}

TEST(ListText, FormatsLikeAPythonList) {
  EXPECT_EQ(list_text({}), "[]");
  const std::vector<std::int64_t> values = {3, -4};
  EXPECT_EQ(list_text(values), "[3, -4]");
}

TEST(NearMatches, PutsTheNearestFirst) {
  const std::vector<std::string> keys = {"bias", "weights", "wieght", "weight.x", "epoch"};
  EXPECT_THAT(near_matches("weight", keys), ElementsAre("weights", "wieght", "weight.x"));
  EXPECT_THAT(near_matches("weight", keys, 1), ElementsAre("weights"));
}

TEST(DidYouMean, NamesTheNearestMatches) {
  const std::vector<std::string> keys = {"weights", "wieght", "weight.x", "epoch"};
  EXPECT_EQ(did_you_mean("weight", keys), R"(did you mean "weights", "wieght" or "weight.x"?)");
  EXPECT_EQ(did_you_mean("weight", keys, 1), R"(did you mean "weights"?)");
  EXPECT_EQ(did_you_mean("optimizer", keys), "");
}

TEST(NearMatches, CaseAndDottedSuffixesAreSimilar) {
  const std::vector<std::string> keys = {"Weight", "encoder.bias", "x"};
  EXPECT_THAT(near_matches("weight", keys), ElementsAre("Weight"));
  EXPECT_THAT(near_matches("bias", keys), ElementsAre("encoder.bias"));
}

TEST(NearMatches, FindsNothingIfNothingIsSimilar) {
  const std::vector<std::string> keys = {"alpha", "beta"};
  EXPECT_THAT(near_matches("optimizer", keys), IsEmpty());
  EXPECT_THAT(near_matches("", keys), IsEmpty());
  EXPECT_THAT(near_matches(std::string(100'000, 'a'), keys), IsEmpty());
}

TEST(NearMatches, ComparesABoundedNumberOfLongCandidates) {
  const std::string middle(250, 'a');
  std::vector<std::string> keys(2'000, "xy" + middle + "xy");
  keys.push_back("AB" + middle + "AB");
  EXPECT_THAT(near_matches("AA" + middle + "BB", keys, 1), ElementsAre(keys[0]));
}

TEST(HumanBytes, SmallSizesAreExactAndLargeOnesRounded) {
  EXPECT_EQ(human_bytes(0), "0 bytes");
  EXPECT_EQ(human_bytes(1), "1 byte");
  EXPECT_EQ(human_bytes(1234), "1,234 bytes");
  EXPECT_EQ(human_bytes(10'000), "10.0 kB");
  EXPECT_EQ(human_bytes(999'960), "1.0 MB");
  EXPECT_EQ(human_bytes(1'500'000'000), "1.5 GB");
  EXPECT_EQ(human_bytes(~std::uint64_t{0}), "18.4 EB");
}

}  // namespace
}  // namespace tenfold::base

#include "base/glob.hpp"

#include <gtest/gtest.h>

#include <string>

namespace tenfold::base {
namespace {

struct Row {
  const char* pattern;
  const char* text;
  bool matches;
};

class GlobTable : public testing::TestWithParam<Row> {};

TEST_P(GlobTable, MatchesAsExpected) {
  const Row& row = GetParam();
  EXPECT_EQ(glob_match(row.pattern, row.text), row.matches) << row.pattern << " on " << row.text;
}

INSTANTIATE_TEST_SUITE_P(
    Rows, GlobTable,
    testing::Values(Row{"", "", true}, Row{"", "a", false}, Row{"a", "", false}, Row{"*", "", true},
                    Row{"*", "a.b.c", true}, Row{"model.*", "model.encoder.weight", true},
                    Row{"model.*", "model", false}, Row{"model.*", "models.weight", false},
                    Row{"*.weight", "a.b.weight", true}, Row{"*.weight", "a.weights", false},
                    Row{"a*b*c", "aXbYbZc", true}, Row{"a*b*c", "aXbYb", false},
                    Row{"**", "anything", true}, Row{"?", "x", true}, Row{"?", "", false},
                    Row{"?", "xy", false}, Row{"?", "\xC3\xA9", true}, Row{"??", "\xC3\xA9", false},
                    Row{"?", "\xFF", true}, Row{"[abc]", "b", true}, Row{"[abc]", "d", false},
                    Row{"[a-c]x", "bx", true}, Row{"[a-c]x", "dx", false}, Row{"[!a-c]", "d", true},
                    Row{"[!a-c]", "b", false}, Row{"[]]", "]", true}, Row{"[!]]", "]", false},
                    Row{"[]", "[]", true}, Row{"[!]", "[!]", true}, Row{"[a]b[", "ab[", true},
                    Row{"[!]]", "x", true}, Row{"[a-]", "-", true}, Row{"[z-a]", "m", false},
                    Row{"[\xC3\xA0-\xC3\xBC]", "\xC3\xA9", true}, Row{"[abc", "[abc", true},
                    Row{"[abc", "a", false}, Row{"[[]", "[", true}, Row{"[*]", "*", true},
                    Row{"[*]", "a", false}, Row{"caf\xC3\xA9", "caf\xE9", false},
                    Row{"caf\xE9", "caf\xC3\xA9", false}, Row{"caf\xE9", "caf\xE9", true},
                    Row{"[\xC3\xA0-\xC3\xBF]", "\xE9", false}, Row{"[\xE9]", "\xE9", true},
                    Row{"[!\xC3\xA9]", "\xE9", true},
                    Row{"layer.[0-9]*.bias", "layer.11.bias", true}, Row{"a.b", "axb", false},
                    Row{"\\*", "\\x", true}));

TEST(Glob, ManyStarsTakeNoExponentialTime) {
  std::string pattern;
  for (int i = 0; i < 50; ++i) pattern += "*a";
  EXPECT_FALSE(glob_match(pattern + "b", std::string(5000, 'a')));
}

TEST(Glob, UnclosedClassesTakeNoCubicTime) {
  constexpr std::size_t kLength = 6'000;
  const std::string brackets(kLength, '[');
  EXPECT_TRUE(glob_match("[a]" + brackets, "a" + brackets));
  EXPECT_FALSE(glob_match("*" + brackets.substr(kLength / 2) + "x", brackets));
  EXPECT_FALSE(glob_match("*[]" + brackets.substr(kLength / 2), brackets));
}

TEST(Glob, DistinguishesGlobsFromPlainNames) {
  EXPECT_TRUE(is_glob("a*"));
  EXPECT_TRUE(is_glob("a?"));
  EXPECT_TRUE(is_glob("[a"));
  EXPECT_FALSE(is_glob("model.encoder.weight"));
}

TEST(Glob, RecognizesPrefixesThatCannotMatch) {
  EXPECT_TRUE(glob_may_match_below("model.*", "model."));
  EXPECT_TRUE(glob_may_match_below("model.*", ""));
  EXPECT_TRUE(glob_may_match_below("mod*", "model.encoder."));
  EXPECT_FALSE(glob_may_match_below("model.*", "optimizer."));
  EXPECT_FALSE(glob_may_match_below("a?c", "abd"));
  EXPECT_FALSE(glob_may_match_below("a[0-9]", "a1."));
}

}  // namespace
}  // namespace tenfold::base

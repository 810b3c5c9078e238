#include "formats/folder/keys.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>

#include <tenfold/error.hpp>

#include "support/message_of.hpp"

namespace tenfold::detail::formats::folder {
namespace {

// Keys and their names in the files of tensordict. The golden folders ok-keys-* contain all of
// these names but the last.
constexpr std::pair<std::string_view, std::string_view> kNames[] = {
    {"a/b", "a%2Fb"},
    {"a b", "a%20b"},
    {"100%", "100%25"},
    {"a%2Fb", "a%252Fb"},
    {"a\\b", "a%5Cb"},
    {"C:x", "C%3Ax"},
    {"q?\"*|", "q%3F%22%2A%7C"},
    {"x<y>z", "x%3Cy%3Ez"},
    {"", "%"},
    {".", "%2E"},
    {"..", "%2E%2E"},
    {"...", "..."},
    {".hidden", ".hidden"},
    {"\xC3\xA9", "\xC3\xA9"},
    {"tab\t", "tab%09"},
    {"\x7F", "%7F"},
    {"~&+#'()", "~&+#'()"},
};

TEST(MemmapKeys, FileNamesMatchTensordict) {
  for (const auto& [key, component] : kNames) EXPECT_EQ(encode_key(key), component);
  EXPECT_EQ(encode_key(std::string_view("\0", 1)), "%00");
}

TEST(MemmapKeys, RoundTripsEveryKey) {
  for (const auto& [key, component] : kNames) EXPECT_EQ(decode_key(component), key);
  for (int byte = 0; byte < 256; ++byte) {
    const std::string key = std::string("k") + static_cast<char>(byte);
    EXPECT_EQ(decode_key(encode_key(key)), key) << byte;
    EXPECT_EQ(encode_key(key).find('/'), std::string::npos);
  }
}

TEST(MemmapKeys, DecodesOnlyEncodedKeys) {
  for (const std::string_view name :
       {"a%2fb", "a b", "%41", "a%", "a%2", ".", "..", "", "%notes.json"}) {
    EXPECT_FALSE(decode_key(name).has_value()) << name;
  }
}

TEST(MemmapKeys, TriesOnlyRawNamesThatStayBelowTheFolder) {
  for (const std::string_view key : {"a b", "100%", "a%2Fb", "x<y>z", "1:x"}) {
    EXPECT_TRUE(is_safe_raw_leaf(key)) << key;
    EXPECT_TRUE(is_safe_raw_node(key)) << key;
  }
  for (const std::string_view key : {std::string_view("a/b"), std::string_view("a\\b"),
                                     std::string_view("C:x"), std::string_view("a\0b", 3)}) {
    EXPECT_FALSE(is_safe_raw_leaf(key)) << key;
    EXPECT_FALSE(is_safe_raw_node(key)) << key;
  }
  for (const std::string_view key : {"", ".", ".."}) {
    EXPECT_TRUE(is_safe_raw_leaf(key)) << key;
    EXPECT_FALSE(is_safe_raw_node(key)) << key;
  }
}

TEST(MemmapKeys, RefusesKeysThatAreNoFileNamesWithoutEncoding) {
  EXPECT_EQ(entry_name("a b", true, true, ""), "a%20b");
  EXPECT_EQ(entry_name("a b", true, false, ""), "a b");
  EXPECT_EQ(entry_name("", true, false, ""), "");
  EXPECT_EQ(
      test::message_of([] { entry_name("", false, false, "n"); }, ErrorCode::invalid_argument),
      "key \"n/%\": No such file or directory: expected a key that is a file name without "
      "encoding, found one that needs encoding; to encode it, use the option robust_key (in C++: "
      "robust_names)");
  EXPECT_THAT(
      test::message_of([] { entry_name("a/b", true, false, ""); }, ErrorCode::invalid_argument),
      testing::HasSubstr("key \"a%2Fb\""));
}

TEST(MemmapKeys, AcceptsOnlyClashNamesFromNotes) {
  EXPECT_TRUE(is_clash_name(clash_name(0)));
  EXPECT_TRUE(is_clash_name("%clash-1234567890123456789"));
  for (const std::string_view name : {"%clash-", "%clash-1/x", "%clash--1", "clash-1", "..", "",
                                      "%clash-12345678901234567890", "%clash-1 "}) {
    EXPECT_FALSE(is_clash_name(name)) << name;
  }
  EXPECT_FALSE(decode_key(clash_name(7)).has_value());
}

}  // namespace
}  // namespace tenfold::detail::formats::folder

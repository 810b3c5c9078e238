#include "ingest/arrow/value.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include <tenfold/value.hpp>

#include "ingest/arrow/arrow_of.hpp"

namespace tenfold {
namespace {

using test::ArrowNode;
using test::ArrowView;

/// Returns the values of `node` as JSON, one per line.
std::string json_of(ArrowNode& node) {
  const ArrowType type = parse_arrow_type(node.schema(), "test");
  check_arrow_array(node.array(), type, "test");
  const ArrowSlice slice = ArrowSlice::whole(node.array(), type);
  std::string made;
  for (std::int64_t i = 0; i < slice.size; ++i) {
    made += (i == 0 ? "" : "\n") + to_json(arrow_value(slice, i));
  }
  return made;
}

TEST(ArrowValue, IntegersOfAllTypesAreExact) {
  ArrowNode bytes("c");
  bytes.pointer().buffer(std::vector<std::int8_t>{-128, 127}).rows(2);
  EXPECT_EQ(json_of(bytes), "-128\n127");
  ArrowNode large("L");
  large.pointer().buffer(std::vector<std::uint64_t>{1, std::uint64_t{1} << 63}).rows(2);
  EXPECT_EQ(json_of(large), "1\n9223372036854775808");
  ArrowNode times("tsn:UTC");
  times.pointer().buffer(std::vector<std::int64_t>{9007199254740993}).rows(1);
  EXPECT_EQ(json_of(times), "9007199254740993");
}

TEST(ArrowValue, FloatsAndBooleansKeepTheirType) {
  ArrowNode floats("f");
  floats.pointer().buffer(std::vector<float>{0.5F, 3}).rows(2);
  EXPECT_EQ(json_of(floats), "0.5\n3.0");
  ArrowNode halves("e");
  halves.pointer().buffer(std::vector<std::uint16_t>{0x3E00}).rows(1);
  EXPECT_EQ(json_of(halves), "1.5");
  ArrowNode flags("b");
  flags.pointer().buffer(std::vector<std::uint8_t>{0b1010}).rows(3, 1);
  EXPECT_EQ(json_of(flags), "true\nfalse\ntrue");
}

TEST(ArrowValue, BytesAreBase64AndDecimalsAreStrings) {
  ArrowNode bytes("z");
  bytes.pointer().buffer(std::vector<std::int32_t>{0, 2, 2}).text("\xff\x01").rows(2);
  EXPECT_EQ(json_of(bytes), "\"/wE=\"\n\"\"");
  ArrowNode fixed("w:2");
  fixed.pointer().text("hi").rows(1);
  EXPECT_EQ(json_of(fixed), "\"aGk=\"");
  ArrowNode views("vu");
  views.pointer().buffer(std::vector<ArrowView>{ArrowView::of("text")});
  views.buffer(std::vector<std::int64_t>{}).rows(1);
  EXPECT_EQ(json_of(views), "\"text\"");
  ArrowNode decimals("d:9,2,32");
  decimals.pointer().buffer(std::vector<std::int32_t>{-150}).rows(1);
  EXPECT_EQ(json_of(decimals), "\"-1.50\"");
}

TEST(ArrowValue, NullsOfEveryLevelAreNull) {
  ArrowNode nulls("n");
  nulls.rows(2, 0, 2);
  EXPECT_EQ(json_of(nulls), "null\nnull");
  ArrowNode words("u");
  words.buffer(std::vector<std::uint8_t>{0b01}).buffer(std::vector<std::int32_t>{0, 1, 1});
  words.text("a").rows(2, 0, 1);
  ArrowNode indices("c");
  indices.buffer(std::vector<std::uint8_t>{0b011}).buffer(std::vector<std::int8_t>{0, 1, 99});
  indices.rows(3, 0, 1).dictionary(words);
  EXPECT_EQ(json_of(indices), "\"a\"\nnull\nnull");
}

TEST(ArrowValue, ListsAndStructsNest) {
  ArrowNode x("i", "x");
  x.pointer().buffer(std::vector<std::int32_t>{1, 2, 3, 4}).rows(4);
  ArrowNode y("b", "y");
  y.buffer(std::vector<std::uint8_t>{0b1101}).buffer(std::vector<std::uint8_t>{0b0001});
  y.rows(4, 0, 1);
  ArrowNode point("+s", "item");
  point.pointer().rows(4).child(x).child(y);
  ArrowNode lists("+l");
  lists.pointer().buffer(std::vector<std::int32_t>{0, 2, 2, 3}).rows(3).child(point);
  EXPECT_EQ(json_of(lists),
            "[{\"x\": 1, \"y\": true}, {\"x\": 2, \"y\": null}]\n[]\n[{\"x\": 3, \"y\": false}]");
  ArrowNode views("+vl");
  views.pointer().buffer(std::vector<std::int32_t>{3}).buffer(std::vector<std::int32_t>{1});
  views.rows(1).child(point);
  EXPECT_EQ(json_of(views), "[{\"x\": 4, \"y\": false}]");
  ArrowNode fixed("+w:2");
  fixed.pointer().rows(1, 1).child(x);
  EXPECT_EQ(json_of(fixed), "[3, 4]");
}

/// Three maps: with the keys "a" and "b", with "c" twice, and without keys.
TEST(ArrowValue, AMapOfDistinctStringKeysIsAnObject) {
  ArrowNode key("u", "key");
  key.pointer().buffer(std::vector<std::int32_t>{0, 1, 2, 3, 4}).text("abcc").rows(4);
  ArrowNode value("i", "value");
  value.pointer().buffer(std::vector<std::int32_t>{1, 2, 3, 4}).rows(4);
  ArrowNode pair("+s", "entries");
  pair.pointer().rows(4).child(key).child(value);
  ArrowNode map("+m");
  map.pointer().buffer(std::vector<std::int32_t>{0, 2, 4, 4}).rows(3).child(pair);
  EXPECT_EQ(json_of(map), "{\"a\": 1, \"b\": 2}\n[[\"c\", 3], [\"c\", 4]]\n{}");
}

TEST(ArrowValue, ANullEntryOfAMapHasANullKeyAndValue) {
  ArrowNode words("u");
  words.pointer().buffer(std::vector<std::int32_t>{0, 1}).text("a").rows(1);
  ArrowNode key("c", "key");
  key.pointer().buffer(std::vector<std::int8_t>{0, 99}).rows(2).dictionary(words);
  ArrowNode value("c", "value");
  value.pointer().buffer(std::vector<std::int8_t>{0, -99}).rows(2).dictionary(words);
  ArrowNode pair("+s", "entries");
  pair.buffer(std::vector<std::uint8_t>{0b01}).rows(2, 0, 1).child(key).child(value);
  ArrowNode map("+m");
  map.pointer().buffer(std::vector<std::int32_t>{0, 1, 2}).rows(2).child(pair);
  EXPECT_EQ(json_of(map), "{\"a\": \"a\"}\n[[null, null]]");
}

TEST(ArrowValue, AMapOfManyStringKeysTakesNoQuadraticTime) {
  constexpr std::int32_t kKeys = 300'000;  // comparing all pairs would take minutes
  std::vector<std::int32_t> ends = {0};
  std::string texts;
  for (std::int32_t i = 0; i < kKeys; ++i) {
    texts += std::to_string(i);
    ends.push_back(static_cast<std::int32_t>(texts.size()));
  }
  ArrowNode key("u", "key");
  key.pointer().buffer(ends).text(texts).rows(kKeys);
  ArrowNode value("n", "value");
  value.rows(kKeys, 0, kKeys);
  ArrowNode pair("+s", "entries");
  pair.pointer().rows(kKeys).child(key).child(value);
  ArrowNode map("+m");
  map.pointer().buffer(std::vector<std::int32_t>{0, kKeys}).rows(1).child(pair);
  const std::string json = json_of(map);
  EXPECT_TRUE(json.starts_with("{\"0\": null, \"1\": null, ")) << json.substr(0, 100);
  EXPECT_TRUE(json.ends_with("\"299999\": null}"));
}

TEST(ArrowValue, AMapOfOtherKeysIsAListOfPairs) {
  ArrowNode key("i", "key");
  key.pointer().buffer(std::vector<std::int32_t>{7, 8}).rows(2);
  ArrowNode value("n", "value");
  value.rows(2, 0, 2);
  ArrowNode pair("+s", "entries");
  pair.pointer().rows(2).child(key).child(value);
  ArrowNode map("+m");
  map.pointer().buffer(std::vector<std::int32_t>{0, 2}).rows(1).child(pair);
  EXPECT_EQ(json_of(map), "[[7, null], [8, null]]");
}

}  // namespace
}  // namespace tenfold

#include "ingest/arrow/array.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>

#include "ingest/arrow/arrow_of.hpp"
#include "support/message_of.hpp"

namespace tenfold {
namespace {

using test::ArrowBatchOf;
using test::ArrowNode;
using test::ArrowView;
using test::expect_error;
using testing::HasSubstr;

ArrowType type_of(ArrowNode& node) { return parse_arrow_type(node.schema(), "stream"); }

/// Checks the array of `node`, and returns a slice of all its values.
ArrowSlice slice_of(ArrowNode& node, const ArrowType& type) {
  check_arrow_array(node.array(), type, "stream");
  return ArrowSlice::whole(node.array(), type);
}

TEST(ArrowTypes, DatesTimesAndDurationsAreCountsOfAUnit) {
  const std::vector<std::tuple<const char*, DType, const char*>> cases = {
      {"tdD", DType::int32, "days"},   {"tdm", DType::int64, "ms"},
      {"tts", DType::int32, "s"},      {"ttm", DType::int32, "ms"},
      {"ttu", DType::int64, "us"},     {"ttn", DType::int64, "ns"},
      {"tss:", DType::int64, "s"},     {"tsm:UTC", DType::int64, "ms"},
      {"tsu:", DType::int64, "us"},    {"tsn:Europe/Zurich", DType::int64, "ns"},
      {"tDs", DType::int64, "s"},      {"tDn", DType::int64, "ns"},
      {"tiM", DType::int32, "months"},
  };
  for (const auto& [format, stored, unit] : cases) {
    ArrowNode node(format);
    const ArrowType type = type_of(node);
    EXPECT_EQ(type.kind, ArrowKind::number) << format;
    EXPECT_EQ(type.stored, stored) << format;
    EXPECT_EQ(type.dtype, DType::int64) << format;
    EXPECT_EQ(type.unit, unit) << format;
  }
}

TEST(ArrowTypes, TimesOfAnUnknownKindOrUnitAreUnsupported) {
  for (const char* format : {"tdx", "tdmm", "ttx", "ttss", "tss", "tsx:", "tDx", "tDss", "txs"}) {
    ArrowNode node(format, "at");
    ArrowNode root("+s");
    root.child(node);
    expect_error(
        ErrorCode::unsupported,
        "schema: column \"at\": no column can store this type: expected numbers, dates and times",
        [&] { type_of(root); });
    expect_error(ErrorCode::unsupported, "found the Arrow format \"" + std::string(format) + "\"",
                 [&] { type_of(root); });
  }
}

TEST(ArrowTypes, AFieldMayHaveAUnitInItsMetadata) {
  const auto unit_of = [](const std::vector<std::string>& keys_and_values) {
    std::string metadata;
    const auto add_number = [&](std::size_t number) {
      const auto value = static_cast<std::int32_t>(number);
      metadata.append(reinterpret_cast<const char*>(&value), sizeof(value));
    };
    add_number(keys_and_values.size() / 2);
    for (const std::string& text : keys_and_values) {
      add_number(text.size());
      metadata += text;
    }
    ArrowNode node("f");
    node.schema().metadata = metadata.data();
    return type_of(node).field_unit;
  };
  EXPECT_EQ(unit_of({}), "");
  EXPECT_EQ(unit_of({"a", "", "unit", "kg", "b", "c"}), "kg");
  EXPECT_EQ(unit_of({"units", "kg"}), "");
  EXPECT_EQ(unit_of({"unit", "\xff"}), "") << "not UTF-8";
}

TEST(ArrowTypes, ADictionaryNeedsIndicesOfAnIntegerType) {
  for (const char* format : {"f", "u", "b", "n"}) {
    ArrowNode words("u");
    ArrowNode node(format);
    node.dictionary(words);
    expect_error(ErrorCode::corrupt,
                 "schema: dictionary: expected indices of an integer type, found format \"" +
                     std::string(format) + "\"",
                 [&] { type_of(node); });
  }
}

TEST(ArrowTypes, AMapNeedsKeysAndValues) {
  ArrowNode key("u", "key");
  ArrowNode value("i", "value");
  ArrowNode pair("+s", "entries");
  pair.child(key).child(value);
  ArrowNode map("+m");
  map.child(pair);
  const ArrowType type = type_of(map);
  EXPECT_EQ(type.kind, ArrowKind::map);
  EXPECT_EQ(type.children[0].children[1].name, "value");
  ArrowNode alone("+s", "entries");
  alone.child(key);
  ArrowNode no_value("+m");
  no_value.child(alone);
  ArrowNode no_key("+m");
  no_key.child(value);
  expect_error(ErrorCode::corrupt, "found format \"+s\" with 1 fields", [&] { type_of(no_value); });
  expect_error(ErrorCode::corrupt,
               "map: expected a child that is a struct of key and value, found format \"i\"",
               [&] { type_of(no_key); });
}

TEST(ArrowTypes, MoreThan64LevelsAreRefused) {
  const auto nested = [](int num_lists) {
    std::deque<ArrowNode> nodes;
    nodes.emplace_back("i");
    for (int i = 0; i < num_lists; ++i) {
      ArrowNode& inner = nodes.back();
      nodes.emplace_back("+l").child(inner);
    }
    return type_of(nodes.back());
  };
  EXPECT_EQ(nested(64).children.size(), 1U);
  expect_error(ErrorCode::corrupt, "nested too deeply: expected at most 64 levels",
               [&] { nested(65); });
}

TEST(ArrowTypes, AReleasedSchemaOrBatchIsRefused) {
  ArrowNode node("i");
  const ArrowType type = type_of(node);
  node.schema().release = nullptr;
  expect_error(ErrorCode::corrupt, "schema: expected a schema, found one that was released",
               [&] { type_of(node); });
  node.array().release = nullptr;
  expect_error(ErrorCode::corrupt, "stream: expected a batch, found one that was released",
               [&] { check_arrow_array(node.array(), type, "stream"); });
}

TEST(ArrowArrays, TheBuffersOfANullArrayAreIgnored) {
  ArrowNode node("n");
  node.rows(2, 0, 2);
  const ArrowType type = type_of(node);
  EXPECT_TRUE(slice_of(node, type).may_have_nulls());
  EXPECT_FALSE(slice_of(node, type).is_valid(1));
  node.pointer();  // polars exports a null array with a buffer
  EXPECT_FALSE(slice_of(node, type).is_valid(1));
}

TEST(ArrowArrays, ADictionaryThatIsMissingIsRefused) {
  ArrowNode words("u");
  ArrowNode x("c", "x");
  x.pointer().buffer(std::vector<std::int8_t>{0}).rows(1).dictionary(words);
  ArrowBatchOf batch(x, 1);
  x.array().dictionary = nullptr;
  const ArrowType type = type_of(batch.root());
  expect_error(ErrorCode::corrupt,
               "column \"x\": dictionary: expected an array, found a null pointer",
               [&] { slice_of(batch.root(), type); });
}

TEST(ArrowArrays, IndicesOfEveryIntegerTypeAreChecked) {
  ArrowNode words("u");
  words.pointer().buffer(std::vector<std::int32_t>{0, 1, 2}).text("ab").rows(2);
  ArrowNode indices("L");
  indices.pointer().buffer(std::vector<std::uint64_t>{1, 0}).rows(2).dictionary(words);
  const ArrowType type = type_of(indices);
  const ArrowSlice slice = slice_of(indices, type);
  EXPECT_EQ(slice.index_at(0), 1);
  EXPECT_EQ(slice.entry(1).text_at(0), "b");
  ArrowNode large("L");
  large.pointer().buffer(std::vector<std::uint64_t>{std::uint64_t{1} << 63}).rows(1);
  large.dictionary(words);
  expect_error(ErrorCode::corrupt, "value 0: expected an index in [0, 2) of the dictionary",
               [&] { slice_of(large, type); });
}

TEST(ArrowArrays, ViewsHaveInlineOrExternalStrings) {
  ArrowNode node("vu");
  const ArrowView external{.size = 13, .inlined = {'t', 'h', 'i', 'r'}, .buffer = 1, .offset = 2};
  const ArrowView null{.size = 99, .inlined = {}, .buffer = 7, .offset = -1};
  node.buffer(std::vector<std::uint8_t>{0b11101});
  node.buffer(std::vector<ArrowView>{ArrowView::of(""), null, ArrowView::of("short"),
                                     ArrowView::of("twelve bytes"), external});
  node.text("").text("..thirteen bytes.").buffer(std::vector<std::int64_t>{0, 17});
  node.rows(5, 0, 1);
  const ArrowType type = type_of(node);
  const ArrowSlice slice = slice_of(node, type);
  EXPECT_EQ(slice.text_at(0), "");
  EXPECT_FALSE(slice.is_valid(1)) << "the view of a null is not checked";
  EXPECT_EQ(slice.text_at(2), "short");
  EXPECT_EQ(slice.text_at(3), "twelve bytes");
  EXPECT_EQ(slice.text_at(4), "thirteen byte");
}

TEST(ArrowArrays, ViewsNeedTheLengthsOfTheirBuffers) {
  ArrowNode node("vz");
  node.pointer().buffer(std::vector<ArrowView>{ArrowView::of("a")}).text("bytes").pointer();
  node.rows(1);
  const ArrowType type = type_of(node);
  EXPECT_TRUE(type.is_binary);
  expect_error(ErrorCode::corrupt, "lengths of the buffers of text: found a null pointer",
               [&] { slice_of(node, type); });
}

TEST(ArrowArrays, FixedBytesMayHaveAWidthOf0) {
  ArrowNode node("w:2");
  node.pointer().text("abcdef").rows(2, 1);
  const ArrowType type = type_of(node);
  EXPECT_EQ(slice_of(node, type).text_at(0), "cd");
  EXPECT_EQ(slice_of(node, type).text_at(1), "ef");
  ArrowNode empty("w:0");
  empty.pointer().pointer().rows(2);
  const ArrowType empty_type = type_of(empty);
  EXPECT_EQ(slice_of(empty, empty_type).text_at(1), "");
}

TEST(ArrowArrays, ListsAreRangesOfTheirItems) {
  ArrowNode items("i", "item");
  items.pointer().buffer(std::vector<std::int32_t>{1, 2, 3, 4, 5, 6}).rows(6);
  using Range = std::pair<std::int64_t, std::int64_t>;
  ArrowNode fixed("+w:2");
  fixed.pointer().rows(2, 1).child(items);
  const ArrowType fixed_type = type_of(fixed);
  EXPECT_EQ(slice_of(fixed, fixed_type).range_at(1), (Range{4, 6}));
  ArrowNode views("+vl");
  views.pointer().buffer(std::vector<std::int32_t>{3, 0}).buffer(std::vector<std::int32_t>{3, 1});
  views.rows(2).child(items);
  const ArrowType view_type = type_of(views);
  EXPECT_EQ(slice_of(views, view_type).range_at(0), (Range{3, 6}));
  EXPECT_EQ(slice_of(views, view_type).range_at(1), (Range{0, 1}));
  ArrowNode large("+vL");
  large.pointer().buffer(std::vector<std::int64_t>{1}).buffer(std::vector<std::int64_t>{5});
  large.rows(1).child(items);
  const ArrowType large_type = type_of(large);
  EXPECT_EQ(slice_of(large, large_type).range_at(0), (Range{1, 6}));
}

TEST(ArrowArrays, ListViewsBeyondTheirItemsAreRefusedUnlessTheyAreNull) {
  ArrowNode items("i", "item");
  items.pointer().buffer(std::vector<std::int32_t>{1, 2, 3}).rows(3);
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  const std::vector<std::tuple<std::int64_t, std::int64_t, const char*>> cases = {
      {1, 3, "list 0: expected items within 0 to 3, found 1 to 4"},
      {-1, 1, "found -1 to -1"},
      {0, -1, "found -1 to -1"},
      {kMax, kMax, "found -1 to -1"},
  };
  for (const auto& [first, count, text] : cases) {
    ArrowNode views("+vL");
    views.buffer(std::vector<std::uint8_t>{1}).buffer(std::vector<std::int64_t>{first});
    views.buffer(std::vector<std::int64_t>{count}).rows(1).child(items);
    const ArrowType type = type_of(views);
    expect_error(ErrorCode::corrupt, text, [&] { slice_of(views, type); });
    ArrowNode null("+vL");
    null.buffer(std::vector<std::uint8_t>{0}).buffer(std::vector<std::int64_t>{first});
    null.buffer(std::vector<std::int64_t>{count}).rows(1, 0, 1).child(items);
    EXPECT_FALSE(slice_of(null, type).is_valid(0));
  }
}

/// Returns as text the decimals of type `format` that are stored in `words`, the least significant
/// word first.
std::vector<std::string> decimals(const char* format, const std::vector<std::uint32_t>& words) {
  ArrowNode node(format);
  const ArrowType type = type_of(node);
  const auto count = static_cast<std::int64_t>(words.size()) * 4 / type.width;
  node.pointer().buffer(words).rows(count);
  const ArrowSlice slice = slice_of(node, type);
  std::vector<std::string> made;
  for (std::int64_t i = 0; i < count; ++i) made.push_back(slice.decimal_at(i));
  return made;
}

TEST(ArrowArrays, DecimalsAreStringsWithTheirSignAndScale) {
  using testing::ElementsAre;
  constexpr std::uint32_t kOnes = 0xFFFFFFFF;
  EXPECT_THAT(decimals("d:9,2,32", {0, 5, 12345, kOnes, 0x80000000}),
              ElementsAre("0.00", "0.05", "123.45", "-0.01", "-21474836.48"));
  EXPECT_THAT(decimals("d:18,0,64", {0, 0, 0, 1, 0, kOnes, 0, 0x80000000}),
              ElementsAre("0", "4294967296", "-4294967296", "-9223372036854775808"));
  EXPECT_THAT(decimals("d:3,-2,32", {7, 0, kOnes}), ElementsAre("700", "0", "-100"));
  EXPECT_THAT(decimals("d:38,3", {0, 0, 1, 0, 0, 0, kOnes, kOnes}),
              ElementsAre("18446744073709551.616", "-18446744073709551.616"));
  EXPECT_THAT(decimals("d:76,1,256", {0, 0, 0, 0, 1, 0, 0, 0, kOnes, kOnes, kOnes, kOnes, kOnes,
                                      kOnes, kOnes, kOnes}),
              ElementsAre("34028236692093846346337460743176821145.6", "-0.1"));
}

}  // namespace
}  // namespace tenfold

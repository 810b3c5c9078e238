#include "ingest/arrow/column.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <tenfold/error.hpp>

#include "ingest/arrow/arrow_of.hpp"
#include "ingest/ingest_of.hpp"

namespace tenfold {
namespace {

using test::ArrowNode;
using test::ArrowView;
using test::IngestedArrow;
using test::texts;
using test::type_of;
using test::valid;
using test::values;
using testing::ElementsAre;
using testing::IsEmpty;

using Bits = std::vector<std::uint8_t>;
using Ints = std::vector<std::int32_t>;

/// The end offset of each row of a ragged column.
std::vector<std::int64_t> ends(const Dataset& ds, const std::string& name) {
  const Batch batch = ds.rows(0, ds.size());
  const auto offsets = batch.column(name).offsets.span<std::int64_t>();
  return {offsets.begin() + 1, offsets.end()};
}

/// The strings of all rows of a column of lists of strings.
std::vector<std::string> items(const Dataset& ds, const std::string& name) {
  const Batch batch = ds.rows(0, ds.size());
  const BatchColumn& column = batch.column(name);
  const auto offsets = column.item_offsets.span<std::int64_t>();
  const auto* bytes = reinterpret_cast<const char*>(column.values.raw_data());
  std::vector<std::string> made;
  for (std::size_t i = 1; i < offsets.size(); ++i) {
    made.emplace_back(bytes + offsets[i - 1], bytes + offsets[i]);
  }
  return made;
}

/// Expects that `row` of the column x is a bad row, and that OnError::skip skips only this row.
/// Returns the data set of the other rows.
Dataset without_bad_row(IngestedArrow& of, ArrowNode& x, std::int64_t num_rows, std::int64_t row,
                        const std::string& text) {
  try {
    of.rows(x, num_rows);
    ADD_FAILURE() << "expected: " << text;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_EQ(error.what(), "Arrow stream: row " + std::to_string(row) + ", column \"x\": " + text);
  }
  EXPECT_FALSE(std::filesystem::exists(of.target()));
  Dataset ds = of.rows(x, num_rows, {.on_error = OnError::skip});
  EXPECT_EQ(of.report.num_bad_rows, 1U);
  EXPECT_EQ(ds.size(), num_rows - 1);
  return ds;
}

TEST(ArrowColumns, BooleansAndNullsBecomeBytesAndMissingFloats) {
  ArrowNode flags("b", "x");
  flags.buffer(Bits{0b1101}).buffer(Bits{0b1001}).rows(4, 0, 1);
  IngestedArrow of;
  const Dataset ds = of.rows(flags, 4);
  EXPECT_EQ(type_of(ds, "x"), "bool?");
  EXPECT_THAT(values<bool>(ds, "x"), ElementsAre(true, false, false, true));
  EXPECT_THAT(valid(ds, "x"), ElementsAre(1, 0, 1, 1));
  ArrowNode nulls("n", "x");
  nulls.rows(2, 0, 2);
  IngestedArrow other;
  const Dataset missing = other.rows(nulls, 2);
  EXPECT_EQ(type_of(missing, "x"), "float64?");
  EXPECT_TRUE(std::isnan(values<double>(missing, "x")[1]));
}

TEST(ArrowColumns, DatesAreWidened) {
  ArrowNode dates("tdD", "x");
  dates.pointer().buffer(Ints{-1, 20000}).rows(2);
  IngestedArrow of;
  const Dataset ds = of.rows(dates, 2);
  EXPECT_EQ(ds.schema().find("x")->unit, "days");
  EXPECT_THAT(values<std::int64_t>(ds, "x"), ElementsAre(-1, 20000));
}

TEST(ArrowColumns, DictionariesOfNumbersBecomeTheirValues) {
  ArrowNode numbers("s");
  numbers.buffer(Bits{0b011}).buffer(std::vector<std::int16_t>{300, 400, 500}).rows(3, 0, 1);
  ArrowNode indices("c", "x");
  indices.buffer(Bits{0b1011}).buffer(std::vector<std::int8_t>{1, 0, 9, 2}).rows(4, 0, 1);
  indices.dictionary(numbers);
  IngestedArrow of;
  const Dataset ds = of.rows(indices, 4);
  EXPECT_EQ(type_of(ds, "x"), "int16?");
  EXPECT_THAT(values<std::int16_t>(ds, "x"), ElementsAre(400, 300, 0, 0));
  EXPECT_THAT(valid(ds, "x"), ElementsAre(1, 1, 0, 0)) << "a null index, and an index of a null";
}

TEST(ArrowColumns, ADictionaryOfDictionariesBecomesTheInnermostValues) {
  ArrowNode words("u");
  words.buffer(Bits{0b011}).buffer(Ints{0, 1, 3, 3}).text("abb").rows(3, 0, 1);
  ArrowNode inner("c");
  inner.pointer().buffer(std::vector<std::int8_t>{2, 1, 0}).rows(3).dictionary(words);
  ArrowNode outer("c", "x");
  outer.pointer().buffer(std::vector<std::int8_t>{1, 2, 0}).rows(3).dictionary(inner);
  IngestedArrow of;
  const Dataset ds = of.rows(outer, 3);
  EXPECT_EQ(type_of(ds, "x"), "string?");
  EXPECT_THAT(texts(ds, "x"), ElementsAre("bb", "a", ""));
  EXPECT_THAT(valid(ds, "x"), ElementsAre(1, 1, 0));
  ArrowNode numbers("s");
  numbers.pointer().buffer(std::vector<std::int16_t>{300, 400}).rows(2);
  ArrowNode middle("c");
  middle.pointer().buffer(std::vector<std::int8_t>{1, 0}).rows(2).dictionary(numbers);
  ArrowNode indices("c", "x");
  indices.pointer().buffer(std::vector<std::int8_t>{0, 1}).rows(2).dictionary(middle);
  IngestedArrow other;
  EXPECT_THAT(values<std::int16_t>(other.rows(indices, 2), "x"), ElementsAre(400, 300));
  // Three nested dictionaries: the two outer ones have indices as their values.
  ArrowNode third("c", "x");
  third.pointer().buffer(std::vector<std::int8_t>{2, 1, 0}).rows(3).dictionary(outer);
  IngestedArrow deep;
  const Dataset words_of_third = deep.rows(third, 3);
  EXPECT_EQ(type_of(words_of_third, "x"), "string?");
  EXPECT_THAT(texts(words_of_third, "x"), ElementsAre("", "a", "bb"));
}

TEST(ArrowColumns, FixedListsBecomeRowsOfThatShape) {
  ArrowNode numbers("i", "item");
  numbers.pointer().buffer(Ints{1, 2, 3, 4, 5, 6, 7, 8}).rows(8);
  ArrowNode pairs("+w:2", "item");
  pairs.pointer().rows(4).child(numbers);
  ArrowNode x("+w:2", "x");
  x.buffer(Bits{0b10}).rows(2, 0, 1).child(pairs);
  IngestedArrow of;
  const Dataset ds = of.rows(x, 2);
  EXPECT_EQ(type_of(ds, "x"), "int32[2, 2]?");
  EXPECT_THAT(values<std::int32_t>(ds, "x"), ElementsAre(0, 0, 0, 0, 5, 6, 7, 8));
  EXPECT_THAT(valid(ds, "x"), ElementsAre(0, 1));
}

TEST(ArrowColumns, ListsOfTheStoredTypeWithoutNullsAreNotCopied) {
  ArrowNode numbers("i", "item");
  numbers.pointer().buffer(Ints{1, 2, 3, 4, 5, 6, 7, 8}).rows(8);
  ArrowNode pairs("+w:2", "pairs");
  pairs.pointer().rows(3, 1).child(numbers);
  ArrowNode lists("+l", "lists");
  lists.pointer().buffer(Ints{0, 1, 4, 6}).rows(2, 1).child(numbers);
  ArrowNode lists_of_pairs("+l", "lists_of_pairs");
  lists_of_pairs.pointer().buffer(Ints{1, 2, 3}).rows(2).child(pairs);
  ArrowNode root("+s");
  root.pointer().rows(2).child(pairs).child(lists).child(lists_of_pairs);
  const ArrowType type = parse_arrow_type(root.schema(), "test");
  check_arrow_array(root.array(), type, "test");
  const std::vector<ArrowColumn> columns = arrow_columns(type, "test");
  const auto* stored = static_cast<const std::byte*>(numbers.array().buffers[1]);
  const auto expect_in_place = [&](std::size_t column, std::size_t first, std::size_t count) {
    const ArrowRows made =
        read_arrow_column(columns[column], ArrowSlice::whole(root.array(), type));
    EXPECT_EQ(made.chunk.values.data(), stored + first * 4);
    EXPECT_EQ(made.chunk.values.size(), count * 4);
    return std::vector<std::int64_t>(made.chunk.ends.begin(), made.chunk.ends.end());
  };
  EXPECT_THAT(expect_in_place(0, 2, 4), IsEmpty());
  EXPECT_THAT(expect_in_place(1, 1, 5), ElementsAre(3, 5));
  EXPECT_THAT(expect_in_place(2, 4, 4), ElementsAre(1, 2));
}

TEST(ArrowColumns, ANullInAFixedListIsNaNForFloatsAndABadRowOtherwise) {
  ArrowNode floats("g", "item");
  floats.buffer(Bits{0b1011}).buffer(std::vector<double>{1, 2, 3, 4}).rows(4, 0, 1);
  ArrowNode x("+w:2", "x");
  x.pointer().rows(2).child(floats);
  IngestedArrow of;
  const std::vector<double> got = values<double>(of.rows(x, 2), "x");
  EXPECT_TRUE(std::isnan(got[2]));
  EXPECT_EQ(got[3], 4);
  ArrowNode ints("i", "item");
  ints.buffer(Bits{0b1011}).buffer(Ints{1, 2, 3, 4}).rows(4, 0, 1);
  ArrowNode y("+w:2", "x");
  y.pointer().rows(2).child(ints);
  IngestedArrow bad;
  const Dataset ds = without_bad_row(bad, y, 2, 1,
                                     "expected numbers in the list, found null; only lists "
                                     "of floats may contain null, which is stored as NaN");
  EXPECT_EQ(type_of(ds, "x"), "int32[2]");
  EXPECT_THAT(values<std::int32_t>(ds, "x"), ElementsAre(1, 2));
}

TEST(ArrowColumns, ANullListInAFixedListIsABadRow) {
  ArrowNode numbers("i", "item");
  numbers.pointer().buffer(Ints{1, 2, 3, 4}).rows(4);
  ArrowNode inner("+w:1", "item");
  inner.buffer(Bits{0b1101}).rows(4, 0, 1).child(numbers);
  ArrowNode x("+w:2", "x");
  x.pointer().rows(2).child(inner);
  IngestedArrow of;
  const Dataset ds = without_bad_row(of, x, 2, 0, "expected a list in the list, found null");
  EXPECT_THAT(values<std::int32_t>(ds, "x"), ElementsAre(3, 4));
}

TEST(ArrowColumns, ListsWithNullRowsOrConversionsAreCopied) {
  ArrowNode numbers("i", "item");
  numbers.pointer().buffer(Ints{1, 2, 3, 4}).rows(4);
  ArrowNode x("+l", "x");
  x.buffer(Bits{0b101}).buffer(Ints{0, 1, 3, 4}).rows(3, 0, 1).child(numbers);
  IngestedArrow of;
  const Dataset ds = of.rows(x, 3);
  EXPECT_EQ(type_of(ds, "x"), "int32[*]?");
  EXPECT_THAT(values<std::int32_t>(ds, "x"), ElementsAre(1, 4));
  EXPECT_THAT(ends(ds, "x"), ElementsAre(1, 1, 2));
  ArrowNode dates("tdD", "item");
  dates.pointer().buffer(Ints{7, 8, 9}).rows(3);
  ArrowNode views("+vl", "x");
  views.pointer().buffer(Ints{2, 0}).buffer(Ints{1, 2}).rows(2).child(dates);
  IngestedArrow other;
  const Dataset days = other.rows(views, 2);
  EXPECT_EQ(type_of(days, "x"), "int64[*]");
  EXPECT_THAT(values<std::int64_t>(days, "x"), ElementsAre(9, 7, 8));
  EXPECT_THAT(ends(days, "x"), ElementsAre(1, 3));
}

TEST(ArrowColumns, ANullInAListIsNaNForFloatsAndABadRowOtherwise) {
  ArrowNode floats("f", "item");
  floats.buffer(Bits{0b101}).buffer(std::vector<float>{1, 2, 3}).rows(3, 0, 1);
  ArrowNode x("+l", "x");
  x.pointer().buffer(Ints{0, 2, 3}).rows(2).child(floats);
  IngestedArrow of;
  EXPECT_TRUE(std::isnan(values<float>(of.rows(x, 2), "x")[1]));
  ArrowNode ints("i", "item");
  ints.buffer(Bits{0b101}).buffer(Ints{1, 2, 3}).rows(3, 0, 1);
  ArrowNode y("+l", "x");
  y.pointer().buffer(Ints{0, 2, 3}).rows(2).child(ints);
  IngestedArrow bad;
  const Dataset ds = without_bad_row(bad, y, 2, 0,
                                     "expected numbers in the list, found null; only lists "
                                     "of floats may contain null, which is stored as NaN");
  EXPECT_EQ(type_of(ds, "x"), "int32[*]");
  EXPECT_THAT(values<std::int32_t>(ds, "x"), ElementsAre(3));
  EXPECT_THAT(ends(ds, "x"), ElementsAre(1));
}

TEST(ArrowColumns, NullIndicesAndNullDictionaryValuesInAListAreNaN) {
  ArrowNode floats("g");
  floats.buffer(Bits{0b01}).buffer(std::vector<double>{0.5, 0}).rows(2, 0, 1);
  ArrowNode indices("c", "item");
  indices.buffer(Bits{0b011}).buffer(std::vector<std::int8_t>{0, 1, 9}).rows(3, 0, 1);
  indices.dictionary(floats);
  ArrowNode x("+l", "x");
  x.pointer().buffer(Ints{0, 3}).rows(1).child(indices);
  IngestedArrow of;
  const std::vector<double> got = values<double>(of.rows(x, 1), "x");
  ASSERT_EQ(got.size(), 3U);
  EXPECT_EQ(got[0], 0.5);
  EXPECT_TRUE(std::isnan(got[1]) && std::isnan(got[2]));
}

TEST(ArrowColumns, ListsOfFixedListsAreRaggedRowsWithAShape) {
  ArrowNode numbers("i", "item");
  numbers.pointer().buffer(Ints{1, 2, 3, 4, 5, 6}).rows(6);
  ArrowNode pairs("+w:2", "item");
  pairs.buffer(Bits{0b110}).rows(3, 0, 1).child(numbers);
  ArrowNode x("+l", "x");
  x.pointer().buffer(Ints{0, 1, 3}).rows(2).child(pairs);
  IngestedArrow of;
  const Dataset ds = without_bad_row(of, x, 2, 0, "expected a list in the list, found null");
  EXPECT_EQ(type_of(ds, "x"), "int32[*, 2]");
  EXPECT_THAT(values<std::int32_t>(ds, "x"), ElementsAre(3, 4, 5, 6));
  // A null list one level below.
  ArrowNode singles("+w:1", "item");
  singles.buffer(Bits{0b101111}).rows(6, 0, 1).child(numbers);
  ArrowNode deep("+w:2", "item");
  deep.pointer().rows(3).child(singles);
  ArrowNode y("+l", "x");
  y.pointer().buffer(Ints{0, 2, 3}).rows(2).child(deep);
  IngestedArrow other;
  EXPECT_EQ(
      type_of(without_bad_row(other, y, 2, 1, "expected a list in the list, found null"), "x"),
      "int32[*, 2, 1]");
}

TEST(ArrowColumns, ANullInNestedListsIsABadRow) {
  ArrowNode numbers("i", "item");
  numbers.buffer(Bits{0b1011}).buffer(Ints{1, 2, 3, 4}).rows(4, 0, 1);
  ArrowNode lists("+l", "item");
  lists.pointer().buffer(Ints{0, 2, 4}).rows(2).child(numbers);
  ArrowNode x("+l", "x");
  x.pointer().buffer(Ints{0, 1, 2}).rows(2).child(lists);
  IngestedArrow of;
  const Dataset ds = without_bad_row(of, x, 2, 1,
                                     "expected numbers in the list, found null; only lists "
                                     "of floats may contain null, which is stored as NaN");
  EXPECT_EQ(type_of(ds, "x"), "int32[*, 2]");
  EXPECT_THAT(values<std::int32_t>(ds, "x"), ElementsAre(1, 2));
}

TEST(ArrowColumns, ListsOfStringsHaveAnEndOffsetForEachRow) {
  ArrowNode words("vu", "item");
  words.pointer().buffer(
      std::vector<ArrowView>{ArrowView::of("a"), ArrowView::of(""), ArrowView::of("ccc")});
  words.buffer(std::vector<std::int64_t>{}).rows(3);
  ArrowNode x("+l", "x");
  x.buffer(Bits{0b1011}).buffer(Ints{0, 2, 2, 2, 3}).rows(4, 0, 1).child(words);
  IngestedArrow of;
  const Dataset ds = of.rows(x, 4);
  EXPECT_EQ(type_of(ds, "x"), "string[*]?");
  EXPECT_THAT(items(ds, "x"), ElementsAre("a", "", "ccc"));
  EXPECT_THAT(ends(ds, "x"), ElementsAre(2, 2, 2, 3));
}

TEST(ArrowColumns, ANullOrInvalidUtf8InAListOfStringsIsABadRow) {
  ArrowNode words("u", "item");
  words.buffer(Bits{0b101}).buffer(Ints{0, 1, 1, 2}).text("ab").rows(3, 0, 1);
  ArrowNode x("+l", "x");
  x.pointer().buffer(Ints{0, 2, 3}).rows(2).child(words);
  IngestedArrow of;
  const Dataset ds = without_bad_row(of, x, 2, 0, "expected text in the list, found null");
  EXPECT_THAT(items(ds, "x"), ElementsAre("b"));
  ArrowNode blobs("z", "item");
  blobs.buffer(Bits{0b101}).buffer(Ints{0, 1, 1, 2}).text("ab").rows(3, 0, 1);
  ArrowNode z("+l", "x");
  z.pointer().buffer(Ints{0, 2, 3}).rows(2).child(blobs);
  IngestedArrow binary;
  without_bad_row(binary, z, 2, 0, "expected bytes in the list, found null");
  ArrowNode bytes("u", "item");
  bytes.pointer().buffer(Ints{0, 1, 2}).text("a\xff").rows(2);
  ArrowNode y("+l", "x");
  y.pointer().buffer(Ints{0, 1, 2}).rows(2).child(bytes);
  IngestedArrow other;
  EXPECT_THAT(items(without_bad_row(other, y, 2, 1, "expected UTF-8, found \"\\xff\""), "x"),
              ElementsAre("a"));
}

TEST(ArrowColumns, AStringThatIsNotUtf8IsABadRow) {
  ArrowNode x("u", "x");
  x.pointer()
      .buffer(Ints{0, 1, 2, 3})
      .text(
          "a\xff"
          "b")
      .rows(3);
  IngestedArrow of;
  EXPECT_THAT(texts(without_bad_row(of, x, 3, 1, "expected UTF-8, found \"\\xff\""), "x"),
              ElementsAre("a", "b"));
}

TEST(ArrowColumns, ARowThatEndsInsideACharacterIsABadRow) {
  // The buffer is valid UTF-8, but each of the first two rows has only one byte of a two-byte
  // character.
  ArrowNode x("u", "x");
  x.pointer().buffer(Ints{0, 1, 2, 3}).text("\xC3\xA9z").rows(3);
  IngestedArrow of;
  const Dataset ds = of.rows(x, 3, {.on_error = OnError::skip});
  EXPECT_EQ(of.report.num_bad_rows, 2U);
  EXPECT_THAT(texts(ds, "x"), ElementsAre("z"));
}

TEST(ArrowColumns, DictionariesOfStringsAndDecimalsBecomeStrings) {
  ArrowNode decimals("d:9,2,32");
  decimals.buffer(Bits{0b01}).buffer(Ints{-150, 0}).rows(2, 0, 1);
  ArrowNode x("C", "x");
  x.pointer().buffer(Bits{0, 1, 0}).rows(3).dictionary(decimals);
  IngestedArrow of;
  const Dataset ds = of.rows(x, 3);
  EXPECT_EQ(type_of(ds, "x"), "string?");
  EXPECT_THAT(texts(ds, "x"), ElementsAre("-1.50", "", "-1.50"));
  EXPECT_THAT(valid(ds, "x"), ElementsAre(1, 0, 1));
}

TEST(ArrowColumns, FixedBytesNeedNotBeUtf8) {
  ArrowNode x("w:2", "x");
  x.pointer().text("\xff\x01zz").rows(2);
  IngestedArrow of;
  const Dataset ds = of.rows(x, 2);
  EXPECT_EQ(type_of(ds, "x"), "bytes");
  EXPECT_THAT(texts(ds, "x"), ElementsAre("\xff\x01", "zz"));
}

TEST(ArrowColumns, ListsOfStructsBecomeJson) {
  ArrowNode number("i", "n");
  number.pointer().buffer(Ints{1, 2}).rows(2);
  ArrowNode record("+s", "item");
  record.pointer().rows(2).child(number);
  ArrowNode x("+l", "x");
  x.buffer(Bits{0b101}).buffer(Ints{0, 1, 1, 2}).rows(3, 0, 1).child(record);
  IngestedArrow of;
  const Dataset ds = of.rows(x, 3);
  EXPECT_EQ(type_of(ds, "x"), "string?");
  EXPECT_THAT(texts(ds, "x"), ElementsAre("[{\"n\": 1}]", "", "[{\"n\": 2}]"));
  ASSERT_EQ(of.report.promotions.size(), 1U);
  EXPECT_EQ(of.report.promotions[0].from, "a list or map");
}

TEST(ArrowColumns, ANullOfADictionaryOfListsIsANullRow) {
  ArrowNode numbers("i", "item");
  numbers.pointer().buffer(Ints{1, 2}).rows(2);
  ArrowNode lists("+l");
  lists.buffer(Bits{0b01}).buffer(Ints{0, 2, 2}).rows(2, 0, 1).child(numbers);
  ArrowNode x("c", "x");
  x.pointer().buffer(std::vector<std::int8_t>{1, 0}).rows(2).dictionary(lists);
  IngestedArrow of;
  const Dataset ds = of.rows(x, 2);
  EXPECT_THAT(texts(ds, "x"), ElementsAre("", "[1, 2]"));
  EXPECT_THAT(valid(ds, "x"), ElementsAre(0, 1));
}

TEST(ArrowColumns, InvalidUtf8InJsonIsABadRow) {
  ArrowNode text("u", "s");
  text.pointer()
      .buffer(Ints{0, 1, 2})
      .text(
          "\xff"
          "b")
      .rows(2);
  ArrowNode record("+s", "item");
  record.pointer().rows(2).child(text);
  ArrowNode x("+l", "x");
  x.pointer().buffer(Ints{0, 1, 2}).rows(2).child(record);
  IngestedArrow of;
  EXPECT_THAT(texts(without_bad_row(of, x, 2, 0, "expected UTF-8, found \"\\xff\""), "x"),
              ElementsAre("[{\"s\": \"b\"}]"));
}

}  // namespace
}  // namespace tenfold

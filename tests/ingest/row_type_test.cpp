#include "ingest/row_type.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace tenfold {
namespace {

using namespace scalar_kind;
using testing::ElementsAre;

constexpr std::uint64_t kBigInteger = std::uint64_t{1} << 63U;

/// The type of one list of scalars.
RowType type_of_list(const std::vector<RowType>& items) {
  ListTypes types;
  for (const RowType& item : items) EXPECT_TRUE(types.add_item(1, item));
  types.add_list(0, static_cast<std::int64_t>(items.size()));
  return types.type();
}

TEST(RowType, KindsHaveAProvisionalTypeUntilTheyAreSettled) {
  EXPECT_EQ(RowType::of_kinds(kNull).form, RowForm::none);
  EXPECT_EQ(RowType::of_kinds(kNull | kBool).text(), "bool");
  EXPECT_EQ(RowType::of_kinds(kBool | kInteger).text(), "int64");
  EXPECT_EQ(RowType::of_kinds(kInteger | kBig).text(), "uint64");
  EXPECT_EQ(RowType::of_kinds(kInteger | kInexact | kFloat).text(), "string");
  const RowType both_ends = RowType::of_kinds(kInteger | kNegative | kBig);
  EXPECT_EQ(both_ends.text(), "float64");
  EXPECT_EQ(settled(both_ends).text(), "string");
  EXPECT_EQ(RowType::of(HugeInteger{}).text(), "string");
  EXPECT_EQ(RowType::of(kBigInteger).text(), "uint64");
}

TEST(ListTypes, ItemsArePromotedToOneType) {
  EXPECT_EQ(type_of_list({}).text(), "an empty list");
  EXPECT_EQ(type_of_list({RowType()}).text(), "a list of null");
  const RowType integer = RowType::of(std::int64_t{7});
  const RowType mixed = type_of_list({integer, RowType(), RowType::scalar(DType::float64)});
  EXPECT_EQ(mixed.text(), "a list of float64");
  EXPECT_TRUE(mixed.has_null);
  EXPECT_EQ(type_of_list({integer, RowType::text(ColumnKind::string)}).text(), "a list of string");
}

TEST(ListTypes, ItemsThatNoTypeHoldsAreRefused) {
  ListTypes types;
  ASSERT_TRUE(types.add_item(1, RowType::text(ColumnKind::bytes)));
  EXPECT_FALSE(types.add_item(1, RowType::of(std::int64_t{1})));
  EXPECT_EQ(types.type().text(), "a list of bytes");
  ASSERT_TRUE(types.add_item(1, RowType::text(ColumnKind::bytes)));
}

TEST(ListTypes, ItemsThatNoTypeHoldsAreRefusedInAnyOrder) {
  for (const bool is_list_first : {false, true}) {
    ListTypes types;
    if (is_list_first) types.add_items(2, kInteger);
    EXPECT_TRUE(types.add_item(1, RowType::of(std::int64_t{1})));
    EXPECT_FALSE(types.add_item(1, RowType::scalar(DType::float32)));
    if (!is_list_first) types.add_items(2, kInteger);
    EXPECT_TRUE(types.is_uneven());
    EXPECT_EQ(types.type().form, RowForm::json);
  }
}

TEST(ListTypes, ListsOfOneLengthAreAShape) {
  ListTypes types;
  types.add_items(2, kInteger);
  types.add_list(1, 3);
  types.add_list(1, 3);
  types.add_list(0, 2);
  EXPECT_THAT(types.type().inner, ElementsAre(3));
  EXPECT_EQ(types.length(), 2);
  ListTypes floats;
  floats.add_items(2, kFloat);
  floats.add_list(1, 3);
  floats.add_list(0, 1);
  types.merge(floats);
  EXPECT_EQ(types.type().text(), "a list of float64[3]");
  EXPECT_EQ(types.length(), 0);
  types.add_list(1, 4);
  EXPECT_EQ(types.type().form, RowForm::json);
}

TEST(ListTypes, ArraysAreListsOfTheirLengths) {
  RowType array = RowType::scalar(DType::float32);
  array.form = RowForm::list;
  array.inner = {3};
  ListTypes types;
  ASSERT_TRUE(types.add_item(1, array, 2));
  ASSERT_TRUE(types.add_item(1, array, 2));
  types.add_list(0, 2);
  EXPECT_EQ(types.type().text(), "a list of float32[2, 3]");
  array.dtype = DType::int8;
  EXPECT_FALSE(types.add_item(1, array, 2));
}

TEST(ListTypes, OtherListsAreJson) {
  const auto is_json = [](auto&& fill) {
    ListTypes types;
    fill(types);
    return types.type().form == RowForm::json;
  };
  EXPECT_TRUE(is_json([](ListTypes& types) { types.add_object(); }));
  EXPECT_TRUE(is_json([](ListTypes& types) {  // lists and scalars
    types.add_items(1, kInteger);
    types.add_items(2, kInteger);
  }));
  EXPECT_TRUE(is_json([](ListTypes& types) {  // an empty list and null
    types.add_items(1, kNull);
    types.add_list(1, 0);
  }));
  EXPECT_TRUE(is_json([](ListTypes& types) {  // lists of strings
    types.add_items(2, kString);
    types.add_list(1, 1);
  }));
  EXPECT_TRUE(is_json([](ListTypes& types) { types.add_list(1, 0); }));
}

TEST(ColumnOf, ListsOfNumbersOfOneLengthHaveAFixedShape) {
  RowType type = RowType::scalar(DType::int64);
  EXPECT_EQ(column_of(type, 3).shape, Shape{});
  type.form = RowForm::list;
  type.inner = {2};
  EXPECT_TRUE(column_of(type).ragged);
  EXPECT_THAT(column_of(type).shape, ElementsAre(2));
  EXPECT_FALSE(column_of(type, 3).ragged);
  EXPECT_THAT(column_of(type, 3).shape, ElementsAre(3, 2));
  RowType strings = RowType::text(ColumnKind::string);
  strings.form = RowForm::list;
  EXPECT_TRUE(column_of(strings, 3).ragged);
  EXPECT_EQ(column_of(RowType::list()).dtype, DType::float64);
}

}  // namespace
}  // namespace tenfold

#include "ingest/rows/column.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace tenfold {
namespace {

using testing::ElementsAre;

std::vector<std::string> texts(RowColumn& column) {
  const ColumnChunk chunk = column.block();
  std::vector<std::string> found;
  std::int64_t begin = 0;
  for (const std::int64_t end : chunk.ends) {
    found.emplace_back(reinterpret_cast<const char*>(chunk.values.data()) + begin,
                       static_cast<std::size_t>(end - begin));
    begin = end;
  }
  return found;
}

void promote(RowColumn& column, const RowType& value) {
  const auto type = column.with(value);
  ASSERT_TRUE(type.has_value());
  column.promote(*type);
}

TEST(RowColumn, PromotedNumbersKeepTheirSourceText) {
  RowColumn column({"x"}, 0);
  promote(column, RowType::scalar(DType::bool_));
  ASSERT_TRUE(column.add(true));
  EXPECT_FALSE(column.add(std::int64_t{7}));
  promote(column, RowType::of(std::int64_t{7}));
  ASSERT_TRUE(column.add(std::int64_t{7}));
  ASSERT_TRUE(column.add(false));
  EXPECT_FALSE(column.add(0.5));
  promote(column, RowType::scalar(DType::float64));
  ASSERT_TRUE(column.add(2.0));
  ASSERT_TRUE(column.add(std::int64_t{-3}));
  ASSERT_TRUE(column.add(nullptr));
  promote(column, RowType::text(ColumnKind::string));
  ASSERT_TRUE(column.add(RowText{ColumnKind::string, "end"}));
  EXPECT_THAT(texts(column), ElementsAre("true", "7", "false", "2.0", "-3", "", "end"));
  EXPECT_THAT(column.block().valid, ElementsAre(1, 1, 1, 1, 1, 0, 1));
}

TEST(RowColumn, InexactIntegersAndFloatsBecomeStrings) {
  RowColumn column({"x"}, 0);
  constexpr std::int64_t kOdd = (std::int64_t{1} << 53) + 1;
  promote(column, RowType::of(kOdd));
  ASSERT_TRUE(column.add(kOdd));
  promote(column, RowType::scalar(DType::float64));
  EXPECT_EQ(column.type().kind, ColumnKind::string);
  EXPECT_THAT(texts(column), ElementsAre("9007199254740993"));
}

TEST(RowColumn, NoValueBecomesAStringIfKindsAreKept) {
  const auto column_with = [](const RowType& type) {
    RowColumn column({"x"}, 0, true, true);
    promote(column, type);
    return column;
  };
  RowColumn numbers = column_with(RowType::of(std::int64_t{-1}));
  ASSERT_TRUE(numbers.add(std::int64_t{-1}));
  EXPECT_FALSE(numbers.with(RowType::text(ColumnKind::string)));
  EXPECT_FALSE(numbers.with(RowType::of(std::uint64_t{1} << 63U)));
  EXPECT_TRUE(numbers.with(RowType::scalar(DType::float64)));
  RowColumn strings = column_with(RowType::text(ColumnKind::string));
  ASSERT_TRUE(strings.add(RowText{ColumnKind::string, "a"}));
  EXPECT_FALSE(strings.add(std::int64_t{1}));
  EXPECT_FALSE(strings.with(RowType::of(std::int64_t{1})));
  const RowColumn empty({"x"}, 0, true, true);
  EXPECT_FALSE(empty.with(RowType::json()));
  EXPECT_FALSE(empty.with(RowType::of(HugeInteger{})));
  EXPECT_TRUE(empty.with(RowType::text(ColumnKind::bytes)));
}

TEST(RowColumn, NullsInListsAreCheckedAgainstTheFinalType) {
  RowColumn column({"x"}, 0);
  RowType nulls = RowType::list();
  nulls.has_null = true;
  promote(column, nulls);
  ASSERT_TRUE(column.put(nullptr));
  ASSERT_TRUE(column.end_list(1));
  EXPECT_EQ(column.first_null_not_fitting(), -1);
  RowType integers = RowType::of(std::int64_t{3});
  integers.form = RowForm::list;
  promote(column, integers);
  ASSERT_TRUE(column.put(std::int64_t{3}));
  ASSERT_TRUE(column.end_list(1));
  EXPECT_EQ(column.first_null_not_fitting(), 0);
  RowType floats = RowType::scalar(DType::float64);
  floats.form = RowForm::list;
  promote(column, floats);
  EXPECT_EQ(column.first_null_not_fitting(), -1);
  double stored[2];
  std::memcpy(stored, column.block().values.data(), sizeof(stored));
  EXPECT_TRUE(std::isnan(stored[0]));
  EXPECT_EQ(stored[1], 3);
  promote(column, RowType::json());
  EXPECT_THAT(texts(column), ElementsAre("[null]", "[3]"));
}

TEST(RowColumn, ItemsOfStringListsAreTheSourceValuesAsJson) {
  RowColumn column({"x"}, 0);
  RowType flags = RowType::scalar(DType::bool_);
  flags.form = RowForm::list;
  promote(column, flags);
  ASSERT_TRUE(column.put(true));
  ASSERT_TRUE(column.end_list(1));
  RowType words = RowType::text(ColumnKind::string);
  words.form = RowForm::list;
  promote(column, words);
  ASSERT_TRUE(column.put(RowText{ColumnKind::string, "1"}));
  ASSERT_TRUE(column.put(std::int64_t{1}));
  ASSERT_TRUE(column.end_list(2));
  promote(column, RowType::json());
  EXPECT_THAT(texts(column), ElementsAre("[true]", "[\"1\", 1]"));
}

TEST(RowColumn, AnUndoneRowIsRemovedCompletely) {
  RowColumn column({"x"}, 0);
  RowType list = RowType::list();
  list.has_elements = true;
  list.kind = ColumnKind::string;
  list.dtype = DType::uint8;
  promote(column, list);
  ASSERT_TRUE(column.put(RowText{ColumnKind::string, "kept"}));
  ASSERT_TRUE(column.end_list(1));
  ASSERT_TRUE(column.put(RowText{ColumnKind::string, "half"}));
  column.truncate(1);
  ASSERT_TRUE(column.put(RowText{ColumnKind::string, "new"}));
  ASSERT_TRUE(column.end_list(1));
  const ColumnChunk chunk = column.block();
  EXPECT_THAT(chunk.ends, ElementsAre(1, 2));
  EXPECT_THAT(chunk.item_ends, ElementsAre(4, 7));
}

TEST(RowColumn, ListsOfOneLengthAreFixedRowsUntilTheLengthChanges) {
  RowColumn column({"x"}, 0);
  RowType list = RowType::list();
  list.has_elements = true;
  list.dtype = DType::float64;
  promote(column, list);
  for (const double value : {1.0, 2.0}) ASSERT_TRUE(column.put(value));
  ASSERT_TRUE(column.end_list(2));
  ASSERT_TRUE(column.add(nullptr));
  EXPECT_FALSE(column.stored().ragged);
  EXPECT_THAT(column.stored().shape, ElementsAre(2));
  EXPECT_EQ(column.block().values.size(), 4 * sizeof(double));
  column.clear_block();
  ASSERT_TRUE(column.put(3.0));
  ASSERT_TRUE(column.end_list(1));
  EXPECT_TRUE(column.stored().ragged);
}

TEST(RowColumn, ANumberOfAnArrayBecomesAStringAsOtherNumbersDo) {
  RowColumn column({"x"}, 0);
  promote(column, RowType::text(ColumnKind::string));
  EXPECT_TRUE(column.add(Tensor::scalar<std::int64_t>(3)));
  EXPECT_TRUE(column.add(Tensor::scalar(true)));
  EXPECT_FALSE(column.add(Tensor::scalar(0.5F)));
  EXPECT_FALSE(column.add(Tensor::from<std::int64_t>({3})));
  EXPECT_THAT(texts(column), ElementsAre("3", "true"));
}

TEST(RowColumn, ARequestedColumnAcceptsFittingValuesAndNeverChanges) {
  Column wanted;
  wanted.path = {"x"};
  wanted.dtype = DType::uint8;
  RowColumn column(wanted);
  EXPECT_TRUE(column.add(std::int64_t{255}));
  EXPECT_FALSE(column.add(std::int64_t{256}));
  EXPECT_FALSE(column.add(0.5));
  EXPECT_TRUE(column.add(2.0));
  EXPECT_FALSE(column.add(nullptr));
  EXPECT_FALSE(column.with(RowType::scalar(DType::float64)).has_value());
  EXPECT_EQ(column.num_rows(), 2);
}

TEST(RowColumn, RowsWithoutElementsAreCounted) {
  Column wanted;
  wanted.path = {"x"};
  wanted.dtype = DType::float32;
  wanted.shape = {2, 0};
  RowColumn column(wanted);
  EXPECT_FALSE(column.end_list(1));
  EXPECT_TRUE(column.end_list(2));
  EXPECT_TRUE(column.add(Tensor::zeros(DType::float32, {2, 0})));
  EXPECT_THAT(column.take_rows().values.shape(), ElementsAre(2, 2, 0));
}

TEST(RowColumn, ArraysInListsAreElementsOrPartsOfThem) {
  Column wanted;
  wanted.path = {"x"};
  wanted.dtype = DType::int64;
  wanted.shape = {1, 2, 2};
  RowColumn column(wanted);
  const std::vector<std::int64_t> numbers = {1, 2, 3, 4};
  const Tensor element = Tensor::from(numbers, {2, 2});
  const Tensor part = Tensor::from<std::int64_t>({1, 2});
  EXPECT_FALSE(column.put_array(part));
  EXPECT_FALSE(column.put_array(element, 1));
  EXPECT_TRUE(column.put_array(element));
  EXPECT_TRUE(column.end_list(1));
  EXPECT_TRUE(column.put_array(part, 1));
  EXPECT_TRUE(column.put_array(Tensor::from<std::int64_t>({3, 4}), 1));
  EXPECT_TRUE(column.end_list(1));
  const ColumnChunk rows = column.block();
  const std::vector<std::int64_t> twice = {1, 2, 3, 4, 1, 2, 3, 4};
  ASSERT_EQ(rows.values.size(), twice.size() * 8);
  EXPECT_EQ(std::memcmp(rows.values.data(), twice.data(), rows.values.size()), 0);
}

TEST(RowColumn, IntegerArraysInListsBecomeFloatsAfterFloats) {
  RowColumn column({"x"}, 0);
  RowType floats = RowType::scalar(DType::float64);
  floats.form = RowForm::list;
  floats.inner = {2};
  promote(column, floats);
  ASSERT_TRUE(column.put_array(Tensor::from<std::int64_t>({1, -2})));
  ASSERT_TRUE(column.end_list(1));
  double stored[2];
  std::memcpy(stored, column.block().values.data(), sizeof stored);
  EXPECT_THAT(stored, ElementsAre(1.0, -2.0));
}

TEST(RowType, JoinsFollowTheLattice) {
  const auto joined = [](RowType a, const RowType& b) {
    const auto type = join(a, b);
    return type ? type->text() : std::string("none");
  };
  const RowType flag = RowType::scalar(DType::bool_);
  const RowType number = RowType::of(std::int64_t{5});
  const RowType negative = RowType::of(std::int64_t{-5});
  const RowType large = RowType::of(~std::uint64_t{0});
  const RowType real = RowType::scalar(DType::float64);
  const RowType word = RowType::text(ColumnKind::string);
  EXPECT_EQ(joined({}, flag), "bool");
  EXPECT_EQ(joined(flag, number), "int64");
  EXPECT_EQ(joined(number, real), "float64");
  EXPECT_EQ(joined(number, large), "uint64");
  EXPECT_EQ(joined(negative, large), "string");
  EXPECT_EQ(joined(large, real), "string");
  EXPECT_EQ(joined(real, word), "string");
  EXPECT_EQ(joined(word, RowType::text(ColumnKind::bytes)), "none");
  EXPECT_EQ(joined(number, RowType::list()), "none");
  EXPECT_EQ(joined(RowType::list(), RowType::json()), "a list as JSON text");
  EXPECT_EQ(joined(RowType::scalar(DType::float32), RowType::scalar(DType::int16)), "none");
}

TEST(ScalarKinds, GrowingTypeOnlyWidens) {
  using namespace scalar_kind;
  constexpr ScalarKinds kAll = 0x1FF;
  const auto rank = [](ScalarKinds kinds) {
    const auto type = growing_type_of(kinds);
    if (!type) return 0;
    if (type->kind == ColumnKind::string) return 5;
    constexpr DType kOrder[] = {DType::bool_, DType::int64, DType::uint64, DType::float64};
    return static_cast<int>(std::find(std::begin(kOrder), std::end(kOrder), type->dtype) -
                            std::begin(kOrder)) +
           1;
  };
  for (ScalarKinds kinds = 0; kinds <= kAll; ++kinds) {
    for (ScalarKinds more = 1; more <= kAll; more = static_cast<ScalarKinds>(more << 1)) {
      EXPECT_LE(rank(kinds), rank(static_cast<ScalarKinds>(kinds | more))) << kinds << " " << more;
    }
  }
}

}  // namespace
}  // namespace tenfold

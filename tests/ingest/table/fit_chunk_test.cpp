#include "ingest/table/fit_chunk.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace tenfold {
namespace {

using testing::ElementsAre;

TEST(WithoutRows, RemovesRowsFromEveryPart) {
  Column column;
  column.path = {"x"};
  column.kind = ColumnKind::string;
  column.dtype = DType::uint8;
  column.ragged = column.nullable = true;
  ColumnBuilder chunk;
  chunk.num_rows = 3;
  for (const char c : {'a', 'b', 'b', 'c'}) *chunk.values.extend(1) = static_cast<std::byte>(c);
  chunk.item_ends = {1, 3, 4};
  chunk.ends = {1, 2, 3};
  chunk.valid = {1, 1, 0};
  const std::vector<std::int64_t> dropped = {1};
  const ColumnBuilder made = without_rows(column, chunk.view(), dropped);
  EXPECT_EQ(made.num_rows, 2);
  EXPECT_THAT(made.ends, ElementsAre(1, 2));
  EXPECT_THAT(made.item_ends, ElementsAre(1, 2));
  EXPECT_THAT(made.valid, ElementsAre(1, 0));
  EXPECT_EQ(made.values.size(), 2U);
}

TEST(FitChunk, RaggedRowsOfTheRequestedLengthBecomeFixed) {
  Column from;
  from.path = {"x"};
  from.dtype = DType::float64;
  from.ragged = true;
  Column to = from;
  to.ragged = false;
  to.shape = {2};
  to.dtype = DType::float32;
  const std::vector<double> values = {1, 2, 3, 4, 5};
  ColumnBuilder chunk;
  chunk.num_rows = 3;
  chunk.values.resize(values.size() * sizeof(double));
  std::memcpy(chunk.values.data(), values.data(), chunk.values.size());
  chunk.ends = {2, 3, 5};
  std::vector<BadValue> bad;
  const ColumnBuilder made = fit_chunk(from, chunk.view(), to, bad);
  ASSERT_EQ(bad.size(), 1U);
  EXPECT_EQ(bad[0].row, 1);
  EXPECT_EQ(bad[0].what, "expected float32[2], found float64[1]");
  EXPECT_EQ(made.values.size(), 3 * 2 * sizeof(float));
}

/// A chunk of two rows; the second one is null.
ColumnBuilder one_row_and_null(const Column& column) {
  ColumnBuilder chunk(column);
  chunk.row();
  chunk.end_row();
  chunk.add_nulls(1);
  chunk.finish();
  return chunk;
}

TEST(FitChunk, NumbersThatAreNotListsOfOneDimensionFitNoListOfStrings) {
  Column to;
  to.path = {"x"};
  to.kind = ColumnKind::string;
  to.dtype = DType::uint8;
  to.ragged = true;
  for (const Shape& shape : {Shape{}, Shape{1, 1}}) {
    for (const bool nullable : {false, true}) {
      Column from;
      from.path = {"x"};
      from.dtype = DType::int64;
      from.shape = shape;
      from.nullable = true;
      to.nullable = nullable;
      std::vector<BadValue> bad;
      const ColumnBuilder made = fit_chunk(from, one_row_and_null(from).view(), to, bad);
      ASSERT_EQ(bad.size(), nullable ? 1U : 2U);
      EXPECT_EQ(bad[0].what, "expected string[*], found " + type_text(from));
      EXPECT_THAT(made.ends, ElementsAre(0, 0));
      if (nullable) continue;
      EXPECT_EQ(bad[1].what,
                "expected string[*], found null; make the column nullable in the schema");
    }
  }
}

}  // namespace
}  // namespace tenfold

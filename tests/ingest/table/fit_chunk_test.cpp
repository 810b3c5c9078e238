#include "ingest/table/fit_chunk.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <vector>

namespace tenfold {
namespace {

using testing::ElementsAre;

template <class T>
bool fits(T value, DType to) {
  return first_not_fitting(dtype_of<T>(), reinterpret_cast<const std::byte*>(&value), to, 1) == 1;
}

TEST(FirstNotFitting, IntegersFitTheirRange) {
  EXPECT_TRUE(fits<std::int64_t>(255, DType::uint8));
  EXPECT_FALSE(fits<std::int64_t>(256, DType::uint8));
  EXPECT_FALSE(fits<std::int64_t>(-1, DType::uint64));
  EXPECT_TRUE(fits<std::int64_t>(-128, DType::int8));
  EXPECT_FALSE(fits<std::int64_t>(-129, DType::int8));
  EXPECT_FALSE(fits<std::uint64_t>(std::uint64_t{1} << 63, DType::int64));
  EXPECT_TRUE(fits<std::uint64_t>((std::uint64_t{1} << 63) - 1, DType::int64));
  EXPECT_TRUE(fits<std::int64_t>(1, DType::bool_));
  EXPECT_FALSE(fits<std::int64_t>(2, DType::bool_));
}

TEST(FirstNotFitting, FloatsFitIntegersIfTheyAreIntegers) {
  EXPECT_TRUE(fits(2.0, DType::int32));
  EXPECT_FALSE(fits(2.5, DType::int32));
  EXPECT_FALSE(fits(std::nan(""), DType::int64));
  EXPECT_FALSE(fits(0x1p63, DType::int64));
  EXPECT_TRUE(fits(-0x1p63, DType::int64));
  EXPECT_FALSE(fits(0x1p64, DType::uint64));
  EXPECT_FALSE(fits(-1.0, DType::uint8));
}

TEST(FirstNotFitting, FloatsFitNarrowerOnesUnlessTheyBecomeInfinite) {
  EXPECT_TRUE(fits(0.1, DType::float32));
  EXPECT_FALSE(fits(1e39, DType::float32));
  EXPECT_TRUE(fits(std::numeric_limits<double>::infinity(), DType::float32));
  EXPECT_FALSE(fits(1e6F, DType::float16));
  EXPECT_TRUE(fits(1e6F, DType::bfloat16));
  EXPECT_FALSE(fits(1e6F, DType::complex32));
  EXPECT_TRUE(fits(std::nan(""), DType::float16));
}

TEST(FirstNotFitting, IntegersFitFloatsUnlessTheyBecomeInfinite) {
  EXPECT_TRUE(fits<std::int64_t>(65'504, DType::float16));
  EXPECT_FALSE(fits<std::int64_t>(70'000, DType::float16));
  EXPECT_FALSE(fits<std::uint64_t>(~std::uint64_t{0}, DType::float16));
  EXPECT_TRUE(fits<std::uint64_t>(~std::uint64_t{0}, DType::bfloat16));
  EXPECT_TRUE(fits<std::uint64_t>(~std::uint64_t{0}, DType::float32));
}

TEST(FirstNotFitting, SmallFloatsDoNotHaveEveryNumber) {
  EXPECT_TRUE(fits(-464.0, DType::float8_e4m3fn));
  EXPECT_FALSE(fits(465.0F, DType::float8_e4m3fn));
  EXPECT_FALSE(fits(std::numeric_limits<double>::infinity(), DType::float8_e4m3fnuz));
  EXPECT_FALSE(fits<std::int64_t>(0, DType::float8_e8m0fnu));
  EXPECT_FALSE(fits(-2.0, DType::float8_e8m0fnu));
  EXPECT_TRUE(fits(std::nan(""), DType::float8_e8m0fnu));
}

TEST(FirstNotFitting, BoolsFitAllDtypesThatHave0And1) {
  const std::byte bools[] = {std::byte{1}, std::byte{0}};
  for (const DType to : {DType::int8, DType::float16, DType::float8_e4m3fn, DType::complex32}) {
    EXPECT_EQ(first_not_fitting(DType::bool_, bools, to, 2), 2);
  }
  EXPECT_EQ(first_not_fitting(DType::bool_, bools, DType::float8_e8m0fnu, 2), 1);
  EXPECT_EQ(first_not_fitting(DType::bool_, bools, DType::float4_e2m1fn_x2, 2), 0);
}

TEST(FirstNotFitting, ComplexNumbersFitNarrowerOnesUnlessAPartBecomesInfinite) {
  const std::complex<double> numbers[] = {{1, 2}, {3, 1e39}, {1e300, 0}};
  const auto* bytes = reinterpret_cast<const std::byte*>(numbers);
  EXPECT_EQ(first_not_fitting(DType::complex128, bytes, DType::complex64, 3), 1);
  EXPECT_EQ(first_not_fitting(DType::complex128, bytes, DType::complex128, 3), 3);
  EXPECT_FALSE(fits(1e39, DType::complex64));
  EXPECT_TRUE(fits(1e38, DType::complex64));
}

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

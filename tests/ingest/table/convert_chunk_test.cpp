#include "ingest/table/convert_chunk.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include <tenfold/error.hpp>

namespace tenfold {
namespace {

using testing::ElementsAre;

Column numbers(DType dtype, Shape shape = {}, bool ragged = false) {
  Column column;
  column.path = {"x"};
  column.dtype = dtype;
  column.shape = std::move(shape);
  column.ragged = ragged;
  return column;
}

Column strings(bool ragged = false) {
  Column column = numbers(DType::uint8, {}, ragged);
  column.kind = ColumnKind::string;
  return column;
}

template <class T>
ColumnBuilder chunk_of(const std::vector<T>& values, std::int64_t num_rows) {
  ColumnBuilder chunk;
  chunk.num_rows = num_rows;
  chunk.values.resize(values.size() * sizeof(T));
  std::memcpy(chunk.values.data(), values.data(), chunk.values.size());
  return chunk;
}

std::string bytes(const ColumnBuilder& chunk) {
  return {reinterpret_cast<const char*>(chunk.values.data()), chunk.values.size()};
}

TEST(ConvertChunk, NullsBecomeNaNInFloats) {
  ColumnBuilder chunk = chunk_of<std::int64_t>({5, 0}, 2);
  chunk.valid = {1, 0};
  const ColumnBuilder made =
      convert_chunk(numbers(DType::int64), chunk.view(), numbers(DType::float64));
  double values[2];
  std::memcpy(values, made.values.data(), sizeof values);
  EXPECT_EQ(values[0], 5);
  EXPECT_TRUE(std::isnan(values[1]));
  EXPECT_THAT(made.valid, ElementsAre(1, 0));
}

TEST(ConvertChunk, FixedRowsBecomeRaggedWithoutNullRows) {
  ColumnBuilder chunk = chunk_of<std::int64_t>({1, 2, 0, 0, 3, 4}, 3);
  chunk.valid = {1, 0, 1};
  const ColumnBuilder made =
      convert_chunk(numbers(DType::int64, {2}), chunk.view(), numbers(DType::int64, {}, true));
  EXPECT_THAT(made.ends, ElementsAre(2, 2, 4));
  EXPECT_EQ(made.values.size(), 4 * sizeof(std::int64_t));
}

TEST(ConvertChunk, ListsOfNumbersBecomeStringsOrJson) {
  ColumnBuilder chunk = chunk_of<double>({1, 2.5, -3}, 2);
  chunk.ends = {1, 3};
  const Column from = numbers(DType::float64, {}, true);
  const ColumnBuilder texts = convert_chunk(from, chunk.view(), strings(true));
  EXPECT_EQ(bytes(texts), "1.02.5-3.0");
  EXPECT_THAT(texts.item_ends, ElementsAre(3, 6, 10));
  EXPECT_THAT(texts.ends, ElementsAre(1, 3));
  const ColumnBuilder json = convert_chunk(from, chunk.view(), strings());
  EXPECT_EQ(bytes(json), "[1.0][2.5, -3.0]");
}

TEST(ConvertChunk, NestedShapesBecomeNestedJson) {
  const ColumnBuilder chunk = chunk_of<std::int64_t>({1, 2, 3, 4}, 1);
  EXPECT_EQ(bytes(convert_chunk(numbers(DType::int64, {2, 2}), chunk.view(), strings())),
            "[[1, 2], [3, 4]]");
}

TEST(Origins, RunsAreAppendedAtAnyPosition) {
  for (const std::int64_t count : {0, 1, 2, 3, 4, 5, 9}) {
    Origins origins;
    origins.begin(2, Origins::Kind::integer);
    origins.push_same(count);
    origins.push(Origins::Kind::null);
    EXPECT_EQ(origins.at(1), Origins::Kind::integer);
    for (std::int64_t i = 0; i < count; ++i) EXPECT_EQ(origins.at(2 + i), Origins::Kind::same);
    EXPECT_EQ(origins.at(2 + count), Origins::Kind::null);
  }
}

TEST(ConvertChunk, OriginsOfSeveralBlocksAreConsecutive) {
  Origins origins;
  origins.begin(1, Origins::Kind::integer);
  origins.push(Origins::Kind::same);
  origins.push(Origins::Kind::boolean);
  std::int64_t position = 0;
  const Column from = numbers(DType::float64);
  const ColumnBuilder first = chunk_of<double>({1, 2}, 2);
  const ColumnBuilder second = chunk_of<double>({1}, 1);
  EXPECT_EQ(bytes(convert_chunk(from, first.view(), strings(), &origins, &position)), "12.0");
  EXPECT_EQ(bytes(convert_chunk(from, second.view(), strings(), &origins, &position)), "true");
}

TEST(ConvertChunk, UnsupportedPromotionsAreRefused) {
  ColumnBuilder chunk = chunk_of<char>({'a'}, 1);
  chunk.ends = {1};
  EXPECT_THROW(convert_chunk(strings(), chunk.view(), numbers(DType::int64)), Error);
  EXPECT_THROW(convert_chunk(strings(), chunk.view(), strings(true)), Error);
}

}  // namespace
}  // namespace tenfold

#include "core/tree/sparse.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <tenfold/error.hpp>

#include "core/tree/node.hpp"

namespace tenfold {
namespace {

using testing::HasSubstr;

Tensor int64s(const std::vector<std::int64_t>& values, Shape shape) {
  return Tensor::from(std::span<const std::int64_t>(values), std::move(shape));
}

TensorDict node_of(const char* layout, Shape shape) {
  NodeInfo info;
  info.kind = NodeKind::sparse;
  info.layout = layout;
  info.dense_shape = std::move(shape);
  return TensorDict(info);
}

/// A CSR matrix. Example: the offsets {0, 2, 2, 3} and the columns {1, 3, 0} give elements at
/// (0, 1), (0, 3) and (2, 0).
TensorDict csr(const std::vector<std::int64_t>& ends, const std::vector<std::int64_t>& columns,
               Shape shape = {3, 4}) {
  TensorDict node = node_of("sparse_csr", std::move(shape));
  node.set("crow_indices", int64s(ends, {static_cast<std::int64_t>(ends.size())}));
  node.set("col_indices", int64s(columns, {static_cast<std::int64_t>(columns.size())}));
  node.set("values", Tensor::zeros(DType::float32, {static_cast<std::int64_t>(columns.size())}));
  return node;
}

std::string complaint(const TensorDict& node) {
  try {
    check_sparse_indices(node, "m.pt: key \"s\"");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::corrupt);
    return error.what();
  }
  return "";
}

TEST(Sparse, ValidComponentsAreAccepted) {
  EXPECT_EQ(complaint(csr({0, 2, 2, 3}, {1, 3, 0})), "");
  EXPECT_EQ(complaint(csr({0}, {}, {0, 4})), "");
  TensorDict coo = node_of("sparse_coo", {3, 4, 2});
  coo.set("indices", int64s({0, 2, 1, 3}, {2, 2}));
  coo.set("values", Tensor::zeros(DType::float32, {2, 2}));
  EXPECT_EQ(complaint(coo), "");
}

TEST(Sparse, ComponentsMayBeInAnyOrder) {
  using Keys = std::vector<std::string>;
  EXPECT_TRUE(are_sparse_parts(Keys{"values", "crow_indices", "col_indices"}, "sparse_csr"));
  EXPECT_TRUE(are_sparse_parts(Keys{"values", "offsets"}, kJagged));
  EXPECT_TRUE(are_sparse_parts(Keys{"lengths", "values", "offsets"}, kJagged));
  EXPECT_FALSE(are_sparse_parts(Keys{"values", "crow_indices"}, "sparse_csr"));
  EXPECT_FALSE(are_sparse_parts(Keys{"indices", "values", "more"}, "sparse_coo"));
  EXPECT_FALSE(are_sparse_parts(Keys{"values", "offsets", "more"}, kJagged));

  TensorDict node = node_of("sparse_csr", {3, 4});
  node.set("values", Tensor::zeros(DType::float32, {3}));
  node.set("crow_indices", int64s({0, 2, 2, 3}, {4}));
  node.set("col_indices", int64s({1, 3, 0}, {3}));
  sort_sparse_parts(*node_of(node));
  EXPECT_EQ(node.keys(), (Keys{"crow_indices", "col_indices", "values"}));
  EXPECT_EQ(node.at("values").dtype(), DType::float32);
}

TEST(Sparse, IndicesOutOfRangeAreReported) {
  EXPECT_EQ(complaint(csr({0, 2, 2, 3}, {1, 4, 0})),
            "m.pt: key \"s\": sparse tensor: col_indices: expected 0 to 3, found 4");
  EXPECT_THAT(complaint(csr({0, 2, 2, 3}, {-1, 3, 0})), HasSubstr("expected 0 to 3, found -1"));
  EXPECT_THAT(complaint(csr({0, 2, 1, 3}, {1, 3, 0})), HasSubstr("nondecreasing"));
  EXPECT_THAT(complaint(csr({0, 9, 9, 3}, {1, 3, 0})), HasSubstr("up to 3, found 9"));
  EXPECT_THAT(complaint(csr({0, 2, 2, 2}, {1, 3, 0})),
              HasSubstr("expected 3 as the last offset, found 2"));
  EXPECT_THAT(complaint(csr({0, 2, 2, 3}, {3, 1, 0})),
              HasSubstr("increasing numbers within a row"));
}

TEST(Sparse, ADimensionOfLengthZeroHasNoIndices) {
  EXPECT_THAT(complaint(csr({0, 1, 1}, {0}, {2, 0})),
              HasSubstr("col_indices: expected no index in a dimension of length 0, found 0"));
  TensorDict coo = node_of("sparse_coo", {0});
  coo.set("indices", int64s({0}, {1, 1}));
  coo.set("values", Tensor::zeros(DType::float32, {1}));
  EXPECT_THAT(complaint(coo),
              HasSubstr("indices: expected no index in a dimension of length 0, found 0"));
}

TEST(Sparse, MoreRowsOfIndicesThanDimensionsAreReported) {
  TensorDict coo = node_of("sparse_coo", {3});
  coo.set("indices", int64s({0, 2, 1, 3}, {2, 2}));
  coo.set("values", Tensor::zeros(DType::float32, {2}));
  EXPECT_THAT(
      complaint(coo),
      HasSubstr("indices: expected at most one row for each dimension of [3], found 2 rows"));
}

TEST(Sparse, AHugeShapeDoesNotOverflow) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  EXPECT_THAT(complaint(csr({0, 2, 2, 3}, {1, 3, 0}, {kMost, 4})),
              HasSubstr("crow_indices: expected one entry more than 9223372036854775807 rows"));
  EXPECT_EQ(complaint(csr({0, 2, 2, 3}, {1, 3, kMost - 1}, {3, kMost})), "");
}

/// A jagged tensor with values of shape [6, 2].
TensorDict jagged(const std::vector<std::int64_t>& offsets, Shape shape = {3, -1, 2}) {
  TensorDict node = node_of("jagged", std::move(shape));
  node.set("values", Tensor::zeros(DType::float32, {6, 2}));
  node.set("offsets", int64s(offsets, {static_cast<std::int64_t>(offsets.size())}));
  return node;
}

TEST(Sparse, OffsetsOfJaggedTensorsMustBeWithinTheirValues) {
  EXPECT_EQ(complaint(jagged({0, 2, 3, 6})), "");
  EXPECT_EQ(complaint(jagged({1, 1, 1, 5})), "");  // uses only a part of the values
  EXPECT_EQ(complaint(jagged({0, 1, 1, 2}, {3, 6, -1})), "");
  EXPECT_EQ(complaint(jagged({0}, {0, -1, 2})), "");
  EXPECT_EQ(complaint(jagged({0, 2, 3, 7})),
            "m.pt: key \"s\": jagged tensor: offsets: expected numbers from 0 to 6, nondecreasing, "
            "found 7");
  EXPECT_THAT(complaint(jagged({0, 3, 2, 6})), HasSubstr("nondecreasing, found 2"));
  EXPECT_THAT(complaint(jagged({-1, 2, 3, 6})), HasSubstr("found -1"));
  EXPECT_THAT(complaint(jagged({0, 2, 6})),
              HasSubstr("offsets: expected one offset more than the 3 rows, found shape [3]"));
  for (const Shape& shape : {Shape{3, -1, 3}, Shape{3, -1}, Shape{3, -1, 2, 1}}) {
    EXPECT_THAT(complaint(jagged({0, 2, 3, 6}, shape)), HasSubstr("values: expected shape"));
  }
  for (const Shape& shape : {Shape{3, 6, 2}, Shape{-1, 6, 2}, Shape{3, -1, -1}, Shape{}}) {
    EXPECT_THAT(complaint(jagged({0, 2, 3, 6}, shape)), HasSubstr("shape: expected -1 for one"));
  }
}

TEST(Sparse, LengthsOfJaggedTensorsMustBeWithinTheirValues) {
  const auto with = [](const std::vector<std::int64_t>& lengths) {
    TensorDict node = jagged({0, 2, 3, 6});
    node.set("lengths", int64s(lengths, {static_cast<std::int64_t>(lengths.size())}));
    return node;
  };
  EXPECT_EQ(complaint(with({1, 0, 3})), "");
  EXPECT_THAT(complaint(with({1, 0, 4})), HasSubstr("lengths: expected 0 to 3, found 4"));
  EXPECT_THAT(complaint(with({-1, 0, 3})), HasSubstr("lengths: expected 0 to 6, found -1"));
  EXPECT_THAT(complaint(with({1, 0})), HasSubstr("lengths: expected shape [3], found shape [2]"));
}

TEST(Sparse, MissingOrInvalidComponentsAreReported) {
  TensorDict node = node_of("sparse_coo", {3});
  node.set("indices", int64s({0}, {1, 1}));
  EXPECT_THAT(complaint(node), HasSubstr("values: expected a tensor, found none"));
  node.set("values", Value(3));
  EXPECT_THAT(complaint(node), HasSubstr("values: expected a tensor, found none"));
}

}  // namespace
}  // namespace tenfold

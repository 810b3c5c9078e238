#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>
#include <tenfold/tensor.hpp>

#include "support/values.hpp"

namespace tenfold {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();

Tensor counting(const Shape& shape) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(numel_of(shape)));
  std::iota(values.begin(), values.end(), 0);
  return Tensor::from(std::span<const std::int32_t>(values), shape);
}

template <class T>
concept SpansElements = requires(T&& tensor) { std::forward<T>(tensor).template span<float>(); };
static_assert(SpansElements<Tensor&> && SpansElements<const Tensor&>);
static_assert(!SpansElements<Tensor> && !SpansElements<const Tensor>,
              "the bytes of a temporary tensor may end with it");
static_assert(!std::is_reference_v<decltype(Tensor().shape())>);
static_assert(!std::is_reference_v<decltype(Tensor().strides())>);

template <class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  ADD_FAILURE() << "expected an error";
  return "";
}

TEST(Tensor, OfNothingHasOneDimensionOfLengthZero) {
  const Tensor tensor;
  EXPECT_EQ(tensor.dtype(), DType::float32);
  EXPECT_THAT(tensor.shape(), ElementsAre(0));
  EXPECT_THAT(tensor.strides(), ElementsAre(1));
  EXPECT_EQ(tensor.ndim(), 1);
  EXPECT_EQ(tensor.numel(), 0);
  EXPECT_TRUE(tensor.is_contiguous());
  EXPECT_THAT(tensor.contiguous().shape(), ElementsAre(0));
  EXPECT_THAT(tensor.narrow(0, 0).shape(), ElementsAre(0));
  EXPECT_THAT(message_of([&] { static_cast<void>(tensor.narrow(0, 1)); }),
              HasSubstr("expected a range within [0, 0)"));
  EXPECT_THAT(message_of([&] { static_cast<void>(tensor.select(0)); }), HasSubstr("(0 rows)"));
  // A 0-d tensor has one element.
  EXPECT_TRUE(Tensor::zeros(DType::int64, {}).shape().empty());
  EXPECT_EQ(Tensor::zeros(DType::int64, {}).numel(), 1);
}

TEST(Shapes, ProductsThatOverflowAreRefused) {
  EXPECT_EQ(numel_of({kHuge}), kHuge);
  EXPECT_THROW(numel_of({kHuge, 2}), Error);
  EXPECT_THROW(numel_of({std::int64_t{1} << 32, std::int64_t{1} << 31}), Error);
  EXPECT_THROW(numel_of({3, kHuge, kHuge, kHuge}), Error);
  EXPECT_THROW(nbytes_of(DType::float64, {std::int64_t{1} << 60}), Error);
  EXPECT_EQ(nbytes_of(DType::float64, {std::int64_t{1} << 59}), std::uint64_t{1} << 62);
}

TEST(Shapes, AZeroDoesNotHideAnOverflow) {
  EXPECT_EQ(numel_of({0, 7}), 0);
  EXPECT_THROW(numel_of({0, kHuge, kHuge}), Error);
  EXPECT_THROW(contiguous_strides({0, kHuge, kHuge}), Error);
}

TEST(Shapes, NegativeLengthsAreRefused) {
  EXPECT_THAT(message_of([] { numel_of({3, -1}); }), "tensor: shape [3, -1] has a negative length");
  EXPECT_THROW(numel_of({-2, -2}), Error);
  EXPECT_THROW(numel_of({0, -1}), Error);
}

TEST(Shapes, StridesEqualTorchs) {
  EXPECT_THAT(contiguous_strides({2, 3, 4}), ElementsAre(12, 4, 1));
  EXPECT_THAT(contiguous_strides({2, 0, 4}), ElementsAre(4, 4, 1));
  EXPECT_TRUE(contiguous_strides({}).empty());
}

TEST(Tensor, OfNoDimensionHoldsOneElement) {
  const double value = 2.5;
  const Tensor tensor = Tensor::from(std::span(&value, 1), {});
  EXPECT_EQ(tensor.ndim(), 0);
  EXPECT_EQ(tensor.numel(), 1);
  EXPECT_EQ(tensor.nbytes(), 8U);
  EXPECT_EQ(tensor.span<double>()[0], 2.5);
  EXPECT_THROW(tensor.select(0), Error);
  EXPECT_THROW(tensor.narrow(0, 0), Error);
}

TEST(Tensor, WithoutElementsNeedsNoBytes) {
  const Tensor tensor(DType::float32, {3, 0, 2}, Buffer());
  EXPECT_EQ(tensor.numel(), 0);
  EXPECT_TRUE(tensor.is_contiguous());
  EXPECT_TRUE(tensor.span<float>().empty());
  EXPECT_THAT(tensor.select(2).shape(), ElementsAre(0, 2));
  EXPECT_THAT(tensor.narrow(1, 3).shape(), ElementsAre(2, 0, 2));
  EXPECT_THAT(tensor.contiguous().shape(), ElementsAre(3, 0, 2));
}

TEST(Tensor, TooSmallABufferIsRefused) {
  EXPECT_THAT(message_of([] { Tensor(DType::float32, {3}, Buffer::allocate(11)); }),
              "tensor: buffer is too small for shape [3] of float32: expected 12 bytes, found 11");
}

TEST(Tensor, ViewsMustLieInsideTheirBuffer) {
  const Buffer buffer = Buffer::allocate(24);  // six int32
  EXPECT_NO_THROW(Tensor(DType::int32, {2, 2}, {4, 1}, buffer, 0));
  EXPECT_NO_THROW(Tensor(DType::int32, {2}, {1}, buffer, 16));
  EXPECT_THROW(Tensor(DType::int32, {2, 3}, {4, 1}, buffer, 0), Error);
  EXPECT_THROW(Tensor(DType::int32, {2}, {1}, buffer, 17), Error);
  EXPECT_THROW(Tensor(DType::int32, {0}, {1}, buffer, 25), Error);
  EXPECT_THROW(Tensor(DType::int32, {1}, {1}, buffer, ~std::uint64_t{0}), Error);
  EXPECT_THROW(Tensor(DType::int32, {3}, {kHuge}, buffer, 0), Error);
  EXPECT_THROW(Tensor(DType::int32, {2}, {kHuge}, buffer, 0), Error);
  EXPECT_THROW(Tensor(DType::int32, {2, 2}, {kHuge / 2, kHuge}, buffer, 0), Error);
  EXPECT_THROW(Tensor(DType::int32, {2}, {-1}, buffer, 4), Error);
  EXPECT_THROW(Tensor(DType::int32, {2}, {}, buffer, 0), Error);
}

TEST(Tensor, RepeatedElementsCountInAContiguousCopy) {
  const Tensor one = counting({1});
  const Tensor three(DType::int32, {3}, {0}, one.buffer(), 0);
  EXPECT_FALSE(three.is_contiguous());
  EXPECT_EQ(three.nbytes(), 12U);
  EXPECT_THAT(test::values<std::int32_t>(three.contiguous()), ElementsAre(0, 0, 0));
}

TEST(Tensor, RowsAreViewsThatOutliveTheirTensor) {
  Tensor row;
  std::weak_ptr<const void> alive;
  {
    const Tensor tensor = counting({3, 2});
    alive = tensor.buffer().owner();
    row = tensor.select(1);
    EXPECT_EQ(row.raw_data(), tensor.raw_data() + 8);
  }
  EXPECT_FALSE(alive.expired());
  EXPECT_THAT(row.shape(), ElementsAre(2));
  EXPECT_THAT(row.span<std::int32_t>(), ElementsAre(2, 3));
  row = Tensor();
  EXPECT_TRUE(alive.expired());
}

TEST(Tensor, NarrowTakesAHalfOpenRange) {
  const Tensor tensor = counting({4, 2});
  EXPECT_THAT(test::values<std::int32_t>(tensor.narrow(1, 3)), ElementsAre(2, 3, 4, 5));
  EXPECT_EQ(tensor.narrow(4, 4).numel(), 0);
  EXPECT_THROW(tensor.narrow(-1, 2), Error);
  EXPECT_THROW(tensor.narrow(2, 1), Error);
  EXPECT_THROW(tensor.narrow(0, 5), Error);
}

TEST(Tensor, RowsOutOfRangeSayHowManyThereAre) {
  const Tensor tensor = counting({4});
  EXPECT_THROW(tensor.select(-1), Error);
  EXPECT_THAT(message_of([&] { tensor.select(4); }), HasSubstr("row 4 is out of range"));
}

TEST(Tensor, StridedElementsNeedACopyForASpan) {
  const Tensor whole = counting({2, 3});
  const Tensor turned(DType::int32, {3, 2}, {1, 3}, whole.buffer(), 0);
  EXPECT_FALSE(turned.is_contiguous());
  EXPECT_THAT(message_of([&] { static_cast<void>(turned.span<std::int32_t>()); }),
              HasSubstr("expected strides [2, 1], found [1, 3]"));
  EXPECT_THAT(test::values<std::int32_t>(turned.contiguous()), ElementsAre(0, 3, 1, 4, 2, 5));
}

TEST(Tensor, StridesOfLengthOneDoNotMatter) {
  const Tensor whole = counting({6});
  EXPECT_TRUE(Tensor(DType::int32, {1, 6}, {99, 1}, whole.buffer(), 0).is_contiguous());
}

TEST(Tensor, AContiguousTensorIsItsOwnContiguousCopy) {
  const Tensor tensor = counting({6}).narrow(2, 4);
  EXPECT_EQ(tensor.contiguous().raw_data(), tensor.raw_data());
}

TEST(Tensor, AnotherTypeIsRefusedByName) {
  EXPECT_THAT(message_of([] { static_cast<void>(counting({2}).data<float>()); }),
              "tensor: elements of another dtype: expected float32, found int32");
}

TEST(Tensor, ReadOnlyBytesAreNotWritable) {
  const Buffer heap = Buffer::allocate(4);
  const Tensor tensor(DType::float32, {1}, Buffer(heap.bytes(), heap.owner(), false));
  EXPECT_EQ(*tensor.data<float>(), 0.0F);
  EXPECT_THROW(static_cast<void>(tensor.mutable_data<float>()), Error);
}

TEST(Tensor, ValuesMustFitTheShape) {
  const std::vector<float> values = {1, 2, 3};
  EXPECT_THAT(message_of([&] { Tensor::from(std::span<const float>(values), {2}); }),
              HasSubstr("expected 3 elements, found 2"));
}

}  // namespace
}  // namespace tenfold

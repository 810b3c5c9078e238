#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>
#include <tenfold/tensor.hpp>

#include "support/message_of.hpp"
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
              "the span would outlive the bytes of a temporary tensor");
static_assert(!std::is_reference_v<decltype(Tensor().shape())>);
static_assert(!std::is_reference_v<decltype(Tensor().strides())>);

std::string error_of(const auto& call) {
  return test::message_of(call, ErrorCode::invalid_argument);
}

TEST(Tensor, DefaultTensorHasOneDimensionOfLengthZero) {
  const Tensor tensor;
  EXPECT_EQ(tensor.dtype(), DType::float32);
  EXPECT_THAT(tensor.shape(), ElementsAre(0));
  EXPECT_THAT(tensor.strides(), ElementsAre(1));
  EXPECT_EQ(tensor.ndim(), 1);
  EXPECT_EQ(tensor.numel(), 0);
  EXPECT_TRUE(tensor.is_contiguous());
  EXPECT_THAT(tensor.contiguous().shape(), ElementsAre(0));
  EXPECT_THAT(tensor.narrow(0, 0).shape(), ElementsAre(0));
  EXPECT_THAT(error_of([&] { static_cast<void>(tensor.narrow(0, 1)); }),
              HasSubstr("expected a range within [0, 0)"));
  EXPECT_THAT(error_of([&] { static_cast<void>(tensor.select(0)); }),
              HasSubstr("expected at least 0 and less than 0"));
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
  EXPECT_THAT(error_of([] { numel_of({3, -1}); }), "tensor: shape [3, -1] has a negative length");
  EXPECT_THROW(numel_of({-2, -2}), Error);
  EXPECT_THROW(numel_of({0, -1}), Error);
}

TEST(Shapes, StridesEqualTorchs) {
  EXPECT_THAT(contiguous_strides({2, 3, 4}), ElementsAre(12, 4, 1));
  EXPECT_THAT(contiguous_strides({2, 0, 4}), ElementsAre(4, 4, 1));
  EXPECT_TRUE(contiguous_strides({}).empty());
}

TEST(Tensor, ZeroDimensionalHoldsOneElement) {
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
  EXPECT_THAT(error_of([] { Tensor(DType::float32, {3}, Buffer::allocate(11)); }),
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

TEST(Tensor, RowIndexOutOfRangeIsRefused) {
  const Tensor tensor = counting({4});
  EXPECT_THROW(tensor.select(-1), Error);
  EXPECT_THAT(error_of([&] { tensor.select(4); }), HasSubstr("row 4 is out of range"));
}

TEST(Tensor, StridedElementsNeedACopyForASpan) {
  const Tensor whole = counting({2, 3});
  const Tensor turned(DType::int32, {3, 2}, {1, 3}, whole.buffer(), 0);
  EXPECT_FALSE(turned.is_contiguous());
  EXPECT_THAT(error_of([&] { static_cast<void>(turned.span<std::int32_t>()); }),
              HasSubstr("expected strides [2, 1], found [1, 3]"));
  EXPECT_THAT(test::values<std::int32_t>(turned.contiguous()), ElementsAre(0, 3, 1, 4, 2, 5));
}

TEST(Tensor, StridesOfDimensionsOfLengthOneAreIgnored) {
  const Tensor whole = counting({6});
  EXPECT_TRUE(Tensor(DType::int32, {1, 6}, {99, 1}, whole.buffer(), 0).is_contiguous());
}

TEST(Tensor, AContiguousTensorIsItsOwnContiguousCopy) {
  const Tensor tensor = counting({6}).narrow(2, 4);
  EXPECT_EQ(tensor.contiguous().raw_data(), tensor.raw_data());
}

TEST(Tensor, AnotherTypeIsRefusedByName) {
  EXPECT_THAT(error_of([] { static_cast<void>(counting({2}).data<float>()); }),
              "tensor: elements of another dtype: expected float32, found int32");
}

TEST(Tensor, ReadOnlyBytesAreNotWritable) {
  const Buffer heap = Buffer::allocate(4);
  const Tensor tensor(DType::float32, {1}, Buffer::read_only(heap.bytes(), heap.owner()));
  EXPECT_EQ(*tensor.data<float>(), 0.0F);
  EXPECT_THROW(static_cast<void>(tensor.mutable_data<float>()), Error);
  EXPECT_THROW(static_cast<void>(tensor.mutable_raw_data()), Error);
}

TEST(Tensor, ValuesMustFitTheShape) {
  const std::vector<float> values = {1, 2, 3};
  EXPECT_THAT(error_of([&] { Tensor::from(std::span<const float>(values), {2}); }),
              HasSubstr("expected 3 elements, found 2"));
  EXPECT_THAT(error_of([&] { Tensor::from(values, {std::int64_t{1} << 50}); }),
              HasSubstr("expected 3 elements, found 1125899906842624"))
      << "must not allocate the shape's 4 PB first";
}

TEST(Tensor, ReadOnlyBytesCanBeRead) {
  const Buffer heap = Buffer::allocate(8);
  const Tensor read_only(DType::float32, {2}, Buffer::read_only(heap.bytes(), heap.owner()));
  EXPECT_EQ(read_only.bytes().size(), 8U);
  EXPECT_THAT(error_of([&] { static_cast<void>(read_only.mutable_bytes()); }),
              "tensor: tensor is read-only");
  const Tensor writable(DType::float32, {2}, heap);
  writable.mutable_bytes()[7] = std::byte{0x40};
  EXPECT_EQ(read_only.at<float>(1), 2.0F);
  const Tensor transposed(DType::float32, {1, 2}, {1, 1}, heap, 0);
  EXPECT_EQ(transposed.bytes().size(), 8U);
  const Tensor strided(DType::int16, {2}, {2}, heap, 0);
  EXPECT_THAT(error_of([&] { static_cast<void>(strided.bytes()); }), HasSubstr("not contiguous"));
}

TEST(Tensor, IsConstructedFromListsVectorsAndScalars) {
  EXPECT_EQ(Tensor::from<std::int64_t>({5, 7}).at<std::int64_t>(1), 7);
  EXPECT_EQ(Tensor::from({1.0F, 2.0F, 3.0F, 4.0F}, {2, 2}).at<float>(1, 0), 3.0F);
  const std::vector<double> values = {1, 2};
  EXPECT_EQ(Tensor::from(values).dtype(), DType::float64);
  EXPECT_EQ(Tensor::from(values, {2, 1}).shape(), (Shape{2, 1}));
  EXPECT_EQ(Tensor::scalar(true).dtype(), DType::bool_);
  EXPECT_EQ(Tensor::scalar(7LL).item<int>(), 7);
  EXPECT_EQ(Tensor::from<std::size_t>({9}).dtype(), DType::uint64);
}

TEST(Tensor, ElementsAreFoundByTheirIndices) {
  const Tensor tensor = counting({4, 3, 2});
  EXPECT_EQ(tensor.at<std::int32_t>(3, 2, 1), tensor.data<std::int32_t>()[23]);
  EXPECT_EQ(tensor[3][2][1].item<int>(), tensor.data<std::int32_t>()[23]);
  EXPECT_EQ(tensor[-1][-1][-1].item<int>(), tensor.data<std::int32_t>()[23]);
  const Tensor even = Tensor(DType::int32, {2, 3}, {12, 2}, tensor.buffer(), 4);
  EXPECT_EQ(even.at<std::int32_t>(1, 2), tensor.data<std::int32_t>()[17]);
  EXPECT_EQ(tensor.size(0), 4);
  EXPECT_EQ(tensor.size(-1), 2);
  EXPECT_EQ(error_of([&] { tensor.at<std::int32_t>(0, 0); }),
            "tensor: index [0, 0]: expected one number for each dimension of shape [4, 3, 2], "
            "found 2");
  EXPECT_EQ(error_of([&] { tensor.at<std::int32_t>(0, 3, 0); }),
            "tensor: index [0, 3, 0] is out of range of shape [4, 3, 2]");
  EXPECT_THROW(tensor.at<std::int32_t>(0, -1, 0), Error);
  EXPECT_THROW(tensor.at<float>(0, 0, 0), Error);
  EXPECT_THROW(tensor[4], Error);
  EXPECT_EQ(error_of([&] { static_cast<void>(tensor[-5]); }),
            "tensor: row -5 is out of range: expected at least -4 and less than 4");
  EXPECT_THROW(static_cast<void>(tensor.size(3)), Error);
  EXPECT_THROW(Tensor()[0], Error);
}

TEST(Tensor, AnItemIsConvertedIfItFits) {
  EXPECT_EQ(Tensor::scalar(2.75).item<float>(), 2.75F);
  EXPECT_EQ(Tensor::scalar(2.75).item<int>(), 2);  // truncated, as in torch
  EXPECT_EQ(Tensor::scalar(-2.75F).item<std::int8_t>(), -2);
  EXPECT_TRUE(Tensor::scalar(0.5).item<bool>());
  EXPECT_EQ(Tensor::scalar(true).item<double>(), 1.0);
  EXPECT_EQ(Tensor::scalar(std::uint64_t{1} << 63).item<std::uint64_t>(), std::uint64_t{1} << 63);
  EXPECT_EQ(Tensor::scalar(std::int64_t{-128}).item<std::int8_t>(), -128);
  EXPECT_EQ(Tensor::scalar(std::complex<float>(1, 2)).item<std::complex<double>>(),
            std::complex<double>(1, 2));
  EXPECT_TRUE(std::isinf(Tensor::scalar(std::numeric_limits<double>::infinity()).item<float>()));
  const auto mismatch = [](const Tensor& tensor, auto type) {
    return error_of([&] { static_cast<void>(tensor.item<decltype(type)>()); });
  };
  EXPECT_EQ(mismatch(Tensor::scalar(300), std::uint8_t{}),
            "tensor: item: the value 300 does not fit uint8");
  EXPECT_EQ(mismatch(Tensor::scalar(-1), std::uint64_t{}),
            "tensor: item: the value -1 does not fit uint64");
  EXPECT_EQ(mismatch(Tensor::scalar(std::uint64_t{1} << 63), std::int64_t{}),
            "tensor: item: the value 9223372036854775808 does not fit int64");
  EXPECT_EQ(mismatch(Tensor::scalar(9.3e18), std::int64_t{}),
            "tensor: item: the value 9.3e+18 does not fit int64");
  EXPECT_EQ(mismatch(Tensor::scalar(std::numeric_limits<float>::quiet_NaN()), std::int32_t{}),
            "tensor: item: the value nan does not fit int32");
  EXPECT_EQ(mismatch(Tensor::scalar(1e300), float{}),
            "tensor: item: the value 1e+300 does not fit float32");
  EXPECT_EQ(mismatch(Tensor::scalar(70000.0F), Half{}),
            "tensor: item: the value 70000 does not fit float16");
  EXPECT_EQ(mismatch(counting({2}), std::int32_t{}),
            "tensor: item: expected one element, found 2 (shape [2])");
  EXPECT_THROW(static_cast<void>(Tensor::scalar(std::complex<float>(1, 2)).item<float>()), Error);
}

TEST(Tensor, NarrowFloatsAreElements) {
  const Tensor halves = Tensor::from<Half>({Half(0.5F), Half(1.0F / 3), Half(-65504.0F)});
  EXPECT_EQ(halves.dtype(), DType::float16);
  EXPECT_EQ(halves.span<Half>()[1].bits(), 0x3555);
  EXPECT_EQ(halves.at<Half>(2), -65504.0F);
  EXPECT_EQ(halves[0].item<double>(), 0.5);
  EXPECT_EQ(Tensor::scalar(BFloat16(3.14159F)).item<float>(), 3.140625F);
  EXPECT_EQ(Tensor::scalar(Float8_e4m3fn(448.0F)).item<int>(), 448);
  EXPECT_EQ(float(Float8_e5m2(1.25F)), 1.25F);
  EXPECT_EQ(float(Float8_e4m3fnuz(0.5F)), 0.5F);
  EXPECT_EQ(float(Float8_e5m2fnuz(-2.0F)), -2.0F);
  EXPECT_EQ(float(Float8_e8m0fnu(8.0F)), 8.0F);
  EXPECT_EQ(Tensor::scalar(2.5).item<BFloat16>().bits(), BFloat16(2.5F).bits());
  EXPECT_EQ(BFloat16::from_bits(0x3F80), 1.0F);
}

std::string text_of(const Tensor& tensor) {
  std::ostringstream text;
  text << tensor;
  return text.str();
}

TEST(Tensor, PrintsItsElementsOrTheFirstAndLast) {
  EXPECT_EQ(text_of(Tensor::from<float>({0, 1, 2.5F, 3}, {2, 2})),
            "tensor([[0, 1],\n        [2.5, 3]], float32 [2, 2])");
  EXPECT_EQ(text_of(Tensor::scalar(7)), "tensor(7, int32 [])");
  EXPECT_EQ(text_of(Tensor()), "tensor([], float32 [0])");
  EXPECT_EQ(text_of(Tensor::from<Half>({Half(0.5F)})), "tensor([0.5], float16 [1])");
  EXPECT_EQ(text_of(Tensor::zeros(DType::uint8, {1000})),
            "tensor([0, 0, 0, ..., 0, 0, 0], uint8 [1000])");
  // A tensor without elements prints immediately even if one dimension is long, and the text of
  // many short dimensions is abbreviated.
  EXPECT_EQ(text_of(Tensor::zeros(DType::uint8, {std::int64_t{1} << 60, 0})),
            "tensor([], uint8 [1152921504606846976, 0])");
  EXPECT_LT(text_of(Tensor::zeros(DType::uint8, Shape(20, 2))).size(), 100'000U);
}

TEST(Tensor, AMovedFromTensorIsADefaultTensor) {
  Tensor first = Tensor::from<std::int64_t>({1, 2, 3, 4}, {2, 2}).narrow(1, 2);
  Tensor second = std::move(first);
  const auto expect_default = [](const Tensor& tensor) {
    EXPECT_EQ(tensor.dtype(), DType::float32);
    EXPECT_EQ(tensor.shape(), (Shape{0}));
    EXPECT_EQ(tensor.numel(), 0);
    EXPECT_EQ(tensor.offset_bytes(), 0U);
    EXPECT_TRUE(tensor.span<float>().empty());
    EXPECT_EQ(text_of(tensor), "tensor([], float32 [0])");
  };
  expect_default(first);  // NOLINT(bugprone-use-after-move): the state is documented
  EXPECT_EQ(second.at<std::int64_t>(0, 1), 4);
  Tensor third;
  third = std::move(second);
  expect_default(second);  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(third.at<std::int64_t>(0, 1), 4);
  Tensor& itself = third;
  third = std::move(itself);
  EXPECT_EQ(third.at<std::int64_t>(0, 1), 4);
  third = {};
  expect_default(third);
}

TEST(Tensor, ACloneHasItsOwnBytes) {
  const Tensor whole = Tensor::from<std::int16_t>({0, 1, 2, 3, 4, 5}, {2, 3});
  const Tensor row = whole.narrow(1, 2);
  const Tensor copy = row.clone();
  row.mutable_data<std::int16_t>()[0] = 9;
  EXPECT_EQ(copy.at<std::int16_t>(0, 0), 3);
  EXPECT_EQ(copy.buffer().size_bytes(), 6U);
  const Tensor turned(DType::int16, {3, 2}, {1, 3}, whole.buffer(), 0);
  EXPECT_EQ(turned.clone().at<std::int16_t>(1, 1), 4);
  EXPECT_EQ(Tensor().clone().shape(), (Shape{0}));
}

template <class Index>
concept IsIndex = requires(const Tensor& tensor, Index index) { tensor.at<float>(index); };
static_assert(IsIndex<int> && IsIndex<std::size_t> && !IsIndex<double>);

TEST(Tensor, TakesAVectorOfBools) {
  const std::vector<bool> values = {true, false, true, true};
  EXPECT_EQ(text_of(Tensor::from(values)), "tensor([true, false, true, true], bool [4])");
  EXPECT_TRUE(Tensor::from(values, {2, 2}).at<bool>(1, 1));
}

}  // namespace
}  // namespace tenfold

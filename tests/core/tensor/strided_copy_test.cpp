#include "core/tensor/strided_copy.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <span>
#include <vector>

#include <tenfold/error.hpp>

namespace tenfold {
namespace {

/// One dtype for each itemsize, because a copy depends only on the itemsize.
constexpr DType kOfEachSize[] = {DType::uint8, DType::int16, DType::float32, DType::int64,
                                 DType::complex128};

struct View {
  Shape shape;
  Shape strides;
  std::uint64_t first_element;
};

// Views that are contiguous, transposed, sliced, with gaps, 0-d, with dimensions of length 1, or
// with repeated elements (stride 0).
const std::vector<View> kViews = {
    {{4, 5, 6}, {30, 6, 1}, 0},
    {{6, 5}, {1, 6}, 3},
    {{70, 45}, {1, 70}, 0},
    {{5, 4, 3}, {1, 5, 20}, 1},
    {{4, 6}, {12, 2}, 0},
    {{3, 1, 4}, {40, 7, 1}, 2},
    {{}, {}, 9},
    {{7}, {3}, 0},
    {{2, 3}, {0, 1}, 0},
    {{2, 3, 4, 5}, {60, 1, 15, 3}, 0},
    {{1, 1}, {5, 5}, 0},
    {{3, 2, 2}, {100, 2, 1}, 0},
};

Tensor view_of(DType dtype, const View& view) {
  constexpr std::size_t kElements = 4000;
  const Buffer buffer = Buffer::allocate(kElements * itemsize(dtype));
  std::mt19937 random(5);
  for (std::byte& b : buffer.mutable_bytes()) b = static_cast<std::byte>(random() & 255);
  return {dtype, view.shape, view.strides, buffer, view.first_element * itemsize(dtype)};
}

/// Returns the address of the element at the row-major index `linear`. A slow reference
/// implementation, which computes the address dimension by dimension.
std::byte* address_of(const Tensor& tensor, std::int64_t linear) {
  std::int64_t at = 0;
  for (std::size_t i = tensor.shape().size(); i-- > 0;) {
    at += linear % tensor.shape()[i] * tensor.strides()[i];
    linear /= tensor.shape()[i];
  }
  return tensor.mutable_raw_data() + at * static_cast<std::int64_t>(tensor.itemsize());
}

TEST(StridedCopy, GathersEveryRangeInRowMajorOrder) {
  for (const DType dtype : kOfEachSize) {
    const std::size_t item = itemsize(dtype);
    for (const View& view : kViews) {
      const Tensor tensor = view_of(dtype, view);
      std::vector<std::byte> whole;
      for (std::int64_t i = 0; i < tensor.numel(); ++i) {
        const std::byte* element = address_of(tensor, i);
        whole.insert(whole.end(), element, element + item);
      }
      const std::int64_t step = tensor.numel() > 200 ? 97 : 1;
      for (std::int64_t begin = 0; begin <= tensor.numel(); begin += step) {
        // Count down from the end, so that some ranges include the last element.
        for (std::int64_t end = tensor.numel(); end >= begin; end -= step) {
          std::vector<std::byte> out(static_cast<std::size_t>(end - begin) * item);
          copy_to_contiguous(tensor, begin, end, out.data());
          if (out.empty()) continue;
          const auto expected =
              std::span(whole).subspan(static_cast<std::size_t>(begin) * item, out.size());
          ASSERT_EQ(std::memcmp(out.data(), expected.data(), out.size()), 0)
              << "itemsize " << item << ", elements [" << begin << ", " << end << ")";
        }
      }
    }
  }
}

TEST(StridedCopy, ScatterIsTheInverseAndWritesNothingElse) {
  for (const DType dtype : kOfEachSize) {
    const std::size_t item = itemsize(dtype);
    for (const View& view : kViews) {
      if (view.shape == Shape{2, 3}) continue;  // repeated elements cannot be written
      const Tensor tensor = view_of(dtype, view);
      const std::int64_t begin = tensor.numel() / 3;
      const std::int64_t end = tensor.numel();
      std::vector<std::byte> expected(tensor.buffer().bytes().begin(),
                                      tensor.buffer().bytes().end());
      std::vector<std::byte> values(static_cast<std::size_t>(end - begin) * item, std::byte{0xA5});
      for (std::int64_t i = begin; i < end; ++i) {
        std::memset(expected.data() + (address_of(tensor, i) - tensor.buffer().data()), 0xA5, item);
      }
      copy_from_contiguous(values.data(), tensor, begin, end);
      ASSERT_EQ(std::memcmp(expected.data(), tensor.buffer().data(), expected.size()), 0);
    }
  }
}

TEST(StridedCopy, WorksAtAddressesThatAreNotAligned) {
  const Buffer buffer = Buffer::allocate(8 * 7 + 1);
  for (std::size_t i = 0; i < buffer.size_bytes(); ++i) {
    buffer.mutable_bytes()[i] = static_cast<std::byte>(i);
  }
  const Tensor tensor(DType::float64, {3}, {2}, buffer, 1);
  std::vector<std::byte> out(24);
  copy_to_contiguous(tensor, 0, 3, out.data());
  EXPECT_EQ(out[0], std::byte{1});
  EXPECT_EQ(out[8], std::byte{17});
  EXPECT_EQ(out[16], std::byte{33});
}

TEST(StridedCopy, RangesOutsideTheTensorAreRefused) {
  const Tensor tensor = Tensor::zeros(DType::float32, {4});
  std::vector<std::byte> out(100);
  EXPECT_THROW(copy_to_contiguous(tensor, 0, 5, out.data()), Error);
  EXPECT_THROW(copy_to_contiguous(tensor, -1, 2, out.data()), Error);
  EXPECT_THROW(copy_to_contiguous(tensor, 3, 2, out.data()), Error);
  EXPECT_NO_THROW(copy_to_contiguous(tensor, 4, 4, out.data()));
}

TEST(StridedCopy, ReadOnlyBytesAreNotWritten) {
  const Buffer heap = Buffer::allocate(16);
  const Tensor tensor(DType::float32, {4}, Buffer::read_only(heap.bytes(), heap.owner()));
  std::vector<std::byte> values(16, std::byte{1});
  EXPECT_THROW(copy_from_contiguous(values.data(), tensor, 0, 4), Error);
  EXPECT_EQ(heap.bytes()[0], std::byte{0});
}

TEST(StridedCopy, ACopyForAFileIsBoundedByTheStorage) {
  const Buffer buffer = Buffer::allocate(8);
  const Tensor huge(DType::int64, {std::int64_t{1} << 36}, {0}, buffer, 0);
  try {
    contiguous_of_file(huge, "x.pt");
    FAIL() << "copied " << huge.nbytes() << " bytes";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_EQ(error.path(), "x.pt");
  }
  const Tensor small(DType::int64, {1000}, {0}, buffer, 0);
  EXPECT_TRUE(contiguous_of_file(small, "x.pt").is_contiguous());
  // The limit applies only to tensors of files. The copy of this tensor in memory has 24 MB, which
  // exceeds the limit.
  const Tensor own(DType::int64, {3'000'000}, {0}, buffer, 0);
  EXPECT_TRUE(contiguous_of_file(own, {"", "data set"}).is_contiguous());
}

}  // namespace
}  // namespace tenfold

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <unordered_set>
#include <vector>

#include <tenfold/error.hpp>
#include <tenfold/leaf.hpp>

#include "core/tensor/leaf_bytes.hpp"
#include "core/tree/fake_source.hpp"
#include "core/tree/outline_leaf.hpp"
#include "os/fs/file.hpp"
#include "support/values.hpp"

namespace tenfold {
namespace {

using testing::ElementsAre;

Buffer counting_bytes(std::size_t count) {
  Buffer buffer = Buffer::allocate(count);
  for (std::size_t i = 0; i < count; ++i) buffer.mutable_bytes()[i] = static_cast<std::byte>(i);
  return buffer;
}

Tensor int64s(const std::vector<std::int64_t>& values, Shape shape) {
  return Tensor::from(std::span<const std::int64_t>(values), std::move(shape));
}

std::vector<int> pieces_of(const Leaf& leaf, std::uint64_t begin, std::uint64_t end,
                           std::size_t scratch_bytes, std::vector<std::size_t>* sizes = nullptr) {
  std::vector<std::byte> scratch(scratch_bytes);
  std::vector<int> out;
  for_each_piece(leaf, begin, end, scratch, [&](std::span<const std::byte> piece) {
    if (sizes != nullptr) sizes->push_back(piece.size());
    for (const std::byte b : piece) out.push_back(std::to_integer<int>(b));
  });
  return out;
}

TEST(Leaf, HasItsShapeOnDiskWithoutBeingMapped) {
  const auto source = std::make_shared<FakeSource>(counting_bytes(32));
  const Leaf leaf = stored_leaf(DType::int16, {2, 3}, source, 8);
  EXPECT_FALSE(leaf.in_memory());
  EXPECT_EQ(leaf.dtype(), DType::int16);
  EXPECT_THAT(leaf.shape(), ElementsAre(2, 3));
  EXPECT_EQ(leaf.nbytes(), 12U);
  EXPECT_EQ(source->num_maps, 0);
  EXPECT_EQ(leaf.tensor().raw_data()[0], std::byte{8});
  EXPECT_EQ(source->num_maps, 1);
}

TEST(Leaf, ReadsOnDiskWithoutMapping) {
  const auto source = std::make_shared<FakeSource>(counting_bytes(32));
  const Leaf leaf = stored_leaf(DType::int16, {6}, source, 8);
  std::byte out[3];
  leaf.read(5, out);
  EXPECT_THAT(out, ElementsAre(std::byte{13}, std::byte{14}, std::byte{15}));
  EXPECT_EQ(source->num_maps, 0);
}

TEST(Leaf, ReadsPastItsEndAreRefused) {
  const Leaf leaf(Tensor::zeros(DType::int16, {2}));
  std::byte out[5];
  EXPECT_THROW(leaf.read(0, out), Error);
  EXPECT_THROW(leaf.read(5, std::span(out).first(0)), Error);
  EXPECT_THROW(leaf.read(~std::uint64_t{0}, std::span(out).first(2)), Error);
  EXPECT_NO_THROW(leaf.read(4, std::span(out).first(0)));
}

TEST(Leaf, ReadsAnyBytesOfAStridedTensor) {
  const Buffer bytes = counting_bytes(24);
  const Leaf leaf(Tensor(DType::int32, {3}, {2}, bytes, 0));
  const std::vector<int> whole = {0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19};
  for (std::size_t begin = 0; begin <= whole.size(); ++begin) {
    for (std::size_t end = begin; end <= whole.size(); ++end) {
      std::vector<std::byte> out(end - begin);
      leaf.read(begin, out);
      for (std::size_t i = begin; i < end; ++i) {
        ASSERT_EQ(std::to_integer<int>(out[i - begin]), whole[i]) << begin << " " << end;
      }
    }
  }
}

TEST(NestedLeaf, HasTheShapeOfItsSizes) {
  const Leaf leaf = Leaf::nested(Tensor::zeros(DType::float32, {10}), int64s({2, 3, 1, 4}, {2, 2}));
  EXPECT_TRUE(leaf.is_nested());
  EXPECT_THAT(leaf.shape(), ElementsAre(2, 2));
  EXPECT_THAT(leaf.tensor().shape(), ElementsAre(10));
  EXPECT_EQ(leaf.nbytes(), 40U);
  EXPECT_THAT(test::values<std::int64_t>(leaf.sizes()), ElementsAre(2, 3, 1, 4));
}

TEST(NestedLeaf, ValuesAndSizesMustAgree) {
  const Tensor ten = Tensor::zeros(DType::float32, {10});
  EXPECT_THROW(Leaf::nested(ten, int64s({2, 3, 1, 5}, {2, 2})), Error);
  EXPECT_THROW(Leaf::nested(ten, int64s({-2, -5}, {1, 2})), Error);
  EXPECT_THROW(Leaf::nested(ten, int64s({10}, {1})), Error);
  EXPECT_THROW(Leaf::nested(ten, Tensor::zeros(DType::int32, {1, 1})), Error);
  EXPECT_THROW(Leaf::nested(Tensor::zeros(DType::float32, {5, 2}), int64s({10}, {1, 1})), Error);
  EXPECT_THROW(static_cast<void>(Leaf(ten).sizes()), Error);
}

TEST(NestedLeaf, OnDiskIsCorruptIfItsSizesAreInvalid) {
  const auto source = std::make_shared<FakeSource>(counting_bytes(32));
  Leaf leaf = stored_leaf(DType::int16, {1, 2}, source, 0);
  leaf.mark_nested();
  source->sizes = int64s({2, 3}, {1, 2});
  EXPECT_EQ(leaf.nbytes(), 12U);
  EXPECT_THAT(leaf.tensor().shape(), ElementsAre(6));
  source->sizes = int64s({INT64_MAX, 3}, {1, 2});
  try {
    static_cast<void>(leaf.tensor());
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::corrupt);
    EXPECT_THAT(error.what(), testing::StartsWith("fake.memmap: sizes of a nested tensor: "));
  }
  source->sizes = int64s({INT64_MAX, INT64_MAX, INT64_MAX}, {3, 1});
  EXPECT_THROW(static_cast<void>(leaf.nbytes()), Error);
}

TEST(Pieces, ContiguousTensorsAreNotCopied) {
  const Tensor tensor(DType::uint8, {10}, counting_bytes(10));
  std::vector<std::byte> scratch(4);
  std::vector<const std::byte*> addresses;
  for_each_piece(Leaf(tensor), 1, 10, scratch,
                 [&](std::span<const std::byte> piece) { addresses.push_back(piece.data()); });
  EXPECT_THAT(addresses,
              ElementsAre(tensor.raw_data() + 1, tensor.raw_data() + 5, tensor.raw_data() + 9));
}

TEST(Pieces, StridedTensorsAreInRowMajorOrder) {
  const Leaf leaf(Tensor(DType::int16, {2, 2}, {1, 2}, counting_bytes(8), 0));
  std::vector<std::size_t> sizes;
  EXPECT_THAT(pieces_of(leaf, 0, 8, 5, &sizes), ElementsAre(0, 1, 4, 5, 2, 3, 6, 7));
  EXPECT_THAT(sizes, ElementsAre(4, 4));
  EXPECT_THAT(pieces_of(leaf, 2, 6, 64), ElementsAre(4, 5, 2, 3));
}

TEST(Pieces, LeavesOnDiskAreRead) {
  const auto source = std::make_shared<FakeSource>(counting_bytes(32));
  EXPECT_THAT(pieces_of(stored_leaf(DType::int16, {4}, source, 8), 2, 8, 4),
              ElementsAre(10, 11, 12, 13, 14, 15));
  EXPECT_EQ(source->num_reads, 2);
  EXPECT_EQ(source->num_maps, 0);
}

TEST(Pieces, RangesOfPartialElementsOrPastTheEndAreRefused) {
  const Leaf leaf(Tensor::zeros(DType::int16, {4}));
  EXPECT_THROW(pieces_of(leaf, 1, 4, 8), Error);
  EXPECT_THROW(pieces_of(leaf, 0, 3, 8), Error);
  EXPECT_THROW(pieces_of(leaf, 0, 10, 8), Error);
  EXPECT_THROW(pieces_of(leaf, 4, 2, 8), Error);
  EXPECT_THROW(pieces_of(leaf, 0, 8, 1), Error);
  EXPECT_TRUE(pieces_of(leaf, 8, 8, 8).empty());
}

TEST(StoredRange, AreEqualForTheSameMemoryRange) {
  const Tensor tensor(DType::uint8, {8}, counting_bytes(8));
  EXPECT_EQ(stored_range(tensor), stored_range(Tensor(DType::int16, {2, 2}, tensor.buffer())));
  EXPECT_NE(stored_range(tensor), stored_range(tensor.narrow(0, 4)));
  EXPECT_NE(stored_range(tensor), stored_range(Tensor(DType::uint8, {8}, counting_bytes(8))));
}

TEST(StoredRange, EmptyAndStridedTensorsHaveNone) {
  EXPECT_EQ(stored_range(Tensor::zeros(DType::uint8, {0})), StoredRange{});
  EXPECT_EQ(stored_range(Tensor(DType::uint8, {2}, {2}, counting_bytes(8), 0)), StoredRange{});
}

TEST(StoredRange, LeavesOnDiskHaveTheIdentityOfTheirSource) {
  const auto source = std::make_shared<FakeSource>(counting_bytes(32));
  const Leaf a = stored_leaf(DType::int16, {4}, source, 8);
  EXPECT_EQ(stored_range(a), stored_range(stored_leaf(DType::int16, {2, 2}, source, 8)));
  EXPECT_NE(stored_range(a), stored_range(stored_leaf(DType::int16, {4}, source, 0)));
  EXPECT_EQ(stored_range(stored_leaf(DType::int16, {0}, source, 8)), StoredRange{});
}

TEST(StoredRange, TheSameInodeOfTwoDevicesIsTwoRanges) {
  os::FileInfo file;
  file.inode = 7;
  std::unordered_set<StoredRange> found;
  for (const std::uint64_t device : {std::uint64_t{1}, std::uint64_t{1} << 32U | 1U}) {
    file.device = device;
    found.insert(StoredRange::in(file, 64, 8));
    found.insert(StoredRange::in(file, 64, 8));
  }
  EXPECT_EQ(found.size(), 2U);
}

TEST(StoredRange, AFileOfUnknownInodeHasNone) {
  os::FileInfo new_file;
  new_file.device = 1;
  EXPECT_EQ(StoredRange::in(new_file, 0, 8), StoredRange{});
}

TEST(OutlineLeaf, HasADtypeAndAShapeAndNoBytes) {
  const Leaf leaf = outline_leaf(DType::float32, {3, 4});
  EXPECT_EQ(leaf.dtype(), DType::float32);
  EXPECT_THAT(leaf.shape(), ElementsAre(3, 4));
  EXPECT_EQ(leaf.nbytes(), 48U);
  EXPECT_FALSE(leaf.in_memory());
  EXPECT_TRUE(is_outline(leaf));
  EXPECT_FALSE(is_outline(Leaf(int64s({1}, {1}))));
  std::vector<std::byte> some(4);
  EXPECT_THROW(leaf.read(0, some), Error);
  EXPECT_THROW(static_cast<void>(leaf.tensor()), Error);
  // An outline allocates no memory, because a file may declare any shape.
  EXPECT_EQ(outline_leaf(DType::uint8, {std::int64_t{1} << 60}).nbytes(), std::uint64_t{1} << 60U);
  EXPECT_THROW(outline_leaf(DType::float32, {std::int64_t{1} << 62}), Error);
}

}  // namespace
}  // namespace tenfold

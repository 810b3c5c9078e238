#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "dataset/loader/epoch_order.hpp"

namespace tenfold {
namespace {

std::vector<std::int64_t> all_of(const EpochOrder& order, std::size_t piece = 1'000'000) {
  std::vector<std::int64_t> positions(static_cast<std::size_t>(order.size()));
  for (std::size_t begin = 0; begin < positions.size(); begin += piece) {
    order.fill(static_cast<std::int64_t>(begin),
               std::span(positions).subspan(begin, std::min(piece, positions.size() - begin)));
  }
  return positions;
}

std::vector<std::int64_t> first_numbers(std::int64_t size) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(size));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

TEST(EpochOrder, ContainsEveryPositionOnceInEveryMode) {
  for (const std::int64_t size : {0, 1, 5, 64, 1000, 12'345}) {
    EXPECT_EQ(all_of(EpochOrder::sequential(size)), first_numbers(size));
    std::vector<std::int64_t> shuffled = all_of(EpochOrder::shuffled(size, 1, 2));
    std::sort(shuffled.begin(), shuffled.end());
    EXPECT_EQ(shuffled, first_numbers(size));
    for (const std::int64_t block : {1, 3, 7, 100, 20'000}) {
      std::vector<std::int64_t> blocks = all_of(EpochOrder::shuffled_in_blocks(size, 1, 2, block));
      std::sort(blocks.begin(), blocks.end());
      EXPECT_EQ(blocks, first_numbers(size)) << size << " in blocks of " << block;
    }
  }
}

TEST(EpochOrder, DoesNotDependOnChunkSizes) {
  const EpochOrder order = EpochOrder::shuffled_in_blocks(10'000, 5, 1, 13);
  const std::vector<std::int64_t> all = all_of(order);
  EXPECT_EQ(all_of(order, 1), all);
  EXPECT_EQ(all_of(order, 777), all);
}

TEST(EpochOrder, TakesTheRowsOfAWindowFromSixtyFourBlocks) {
  constexpr std::int64_t kBlock = 10;
  constexpr std::size_t kWindow = EpochOrder::kWindowBlocks * kBlock;
  const std::vector<std::int64_t> all =
      all_of(EpochOrder::shuffled_in_blocks(100'000, 3, 0, kBlock));
  std::vector<std::int64_t> blocks;
  for (std::size_t i = 0; i < kWindow; ++i) blocks.push_back(all[i] / kBlock);
  EXPECT_FALSE(std::is_sorted(blocks.begin(), blocks.end()));
  std::sort(blocks.begin(), blocks.end());
  blocks.erase(std::unique(blocks.begin(), blocks.end()), blocks.end());
  EXPECT_THAT(blocks, testing::SizeIs(EpochOrder::kWindowBlocks));
  EXPECT_GT(blocks.back() - blocks.front(), 5'000) << "blocks come from everywhere";
}

/// States are stored and resumed by other versions, so these numbers must never change.
TEST(EpochOrder, StaysTheSameInEveryVersion) {
  std::vector<std::int64_t> positions(4);
  EpochOrder::shuffled_in_blocks(1'000'000, 42, 3, 100).fill(500'000, positions);
  EXPECT_THAT(positions, testing::ElementsAre(367964, 543619, 207376, 379597));
  EpochOrder::shuffled_in_blocks(1'000'050, 42, 3, 100).fill(1'000'000, positions);
  EXPECT_THAT(positions, testing::ElementsAre(1000006, 1000022, 1000020, 1000026));
}

TEST(EpochOrder, HasNoOverflowAtTheLargestSizes) {
  constexpr std::int64_t kMax = std::int64_t{1} << 62;
  for (const std::int64_t block : {kMax / 64, kMax / 4, kMax / 2 + 1, kMax + 1}) {
    const EpochOrder order = EpochOrder::shuffled_in_blocks(kMax, 1, 0, block);
    std::vector<std::int64_t> positions(4);
    for (const std::int64_t begin : {std::int64_t{0}, kMax / 2, kMax - 4}) {
      order.fill(begin, positions);
      EXPECT_THAT(positions, testing::Each(testing::Ge(0))) << block;
      EXPECT_THAT(positions, testing::Each(testing::Lt(kMax))) << block;
    }
  }
}

TEST(EpochOrder, DiffersFromEpochToEpoch) {
  EXPECT_NE(all_of(EpochOrder::shuffled_in_blocks(5'000, 1, 0, 8)),
            all_of(EpochOrder::shuffled_in_blocks(5'000, 1, 1, 8)));
  EXPECT_NE(all_of(EpochOrder::shuffled(5'000, 1, 0)), all_of(EpochOrder::shuffled(5'000, 1, 1)));
}

}  // namespace
}  // namespace tenfold

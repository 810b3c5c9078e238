#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include <tenfold/error.hpp>
#include <tenfold/permutation.hpp>

#include "dataset/loader/permutation_kernel.hpp"

namespace tenfold {
namespace {

std::vector<std::int64_t> all_of(const Permutation& order) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(order.size()));
  order.fill(0, rows);
  return rows;
}

TEST(Permutation, ContainsEveryRowOnce) {
  for (const std::int64_t size : {0, 1, 2, 3, 7, 127, 128, 129, 1000, 1023, 1024, 1025, 99'991}) {
    std::vector<std::int64_t> rows = all_of(Permutation(size, 5));
    std::sort(rows.begin(), rows.end());
    std::vector<std::int64_t> expected(static_cast<std::size_t>(size));
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(rows, expected) << size;
  }
}

TEST(Permutation, DoesNotDependOnChunkSizes) {
  const Permutation order(10'007, 3, 2);
  const std::vector<std::int64_t> all = all_of(order);
  for (const std::size_t piece : {1U, 5U, 128U, 300U}) {
    std::vector<std::int64_t> rows(all.size());
    for (std::size_t begin = 0; begin < rows.size(); begin += piece) {
      order.fill(static_cast<std::int64_t>(begin),
                 std::span(rows).subspan(begin, std::min(piece, rows.size() - begin)));
    }
    EXPECT_EQ(rows, all);
  }
  for (const std::int64_t position : {0, 1, 5'000, 10'006}) {
    EXPECT_EQ(order[position], all[static_cast<std::size_t>(position)]);
  }
}

TEST(Permutation, DiffersBySeedAndByEpoch) {
  const std::vector<std::int64_t> first = all_of(Permutation(1000, 0, 0));
  EXPECT_NE(first, all_of(Permutation(1000, 1, 0)));
  EXPECT_NE(first, all_of(Permutation(1000, 0, 1)));
  EXPECT_NE(all_of(Permutation(1000, 1, 0)), all_of(Permutation(1000, 0, 1)));
  EXPECT_EQ(first, all_of(Permutation(1000, 0, 0)));
}

/// States are stored and resumed by other versions, so these numbers must never change.
TEST(Permutation, StaysTheSameInEveryVersion) {
  std::vector<std::int64_t> rows(5);
  Permutation(10, 0, 0).fill(0, rows);
  EXPECT_THAT(rows, testing::ElementsAre(7, 5, 1, 2, 4));
  Permutation(1'000'000, 42, 3).fill(999'995, rows);
  EXPECT_THAT(rows, testing::ElementsAre(13100, 713836, 470268, 357534, 391999));
  Permutation(1'000'000'000'000, 7, 1).fill(0, rows);
  EXPECT_THAT(rows, testing::ElementsAre(269361155338, 723730304076, 734122471589, 158158353688,
                                         301744699605));
}

/// For many seeds, every row is equally frequent at every position: chi squared of 12 x 12 cells.
TEST(Permutation, EveryRowIsEquallyFrequentAtEveryPosition) {
  constexpr std::int64_t kSize = 12;
  constexpr std::uint64_t kSeeds = 24'000;
  std::vector<std::int64_t> counts(kSize * kSize);
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const std::vector<std::int64_t> rows = all_of(Permutation(kSize, seed));
    for (std::int64_t i = 0; i < kSize; ++i) {
      ++counts[static_cast<std::size_t>(i * kSize + rows[static_cast<std::size_t>(i)])];
    }
  }
  const double expected = static_cast<double>(kSeeds) / kSize;
  double chi_squared = 0;
  for (const std::int64_t count : counts) {
    chi_squared += std::pow(static_cast<double>(count) - expected, 2) / expected;
  }
  // 121 degrees of freedom: mean 121, deviation 15.6.
  EXPECT_LT(chi_squared, 121 + 6 * 15.6);
}

/// Tests that distance, correlation and order of consecutive rows are those of random rows.
TEST(Permutation, LooksRandom) {
  constexpr std::int64_t kSize = 1'000'003;
  const std::vector<std::int64_t> rows = all_of(Permutation(kSize, 11));
  double distance = 0;
  double product = 0;
  std::int64_t rising = 0;
  const double mean = (kSize - 1) / 2.0;
  for (std::size_t i = 1; i < rows.size(); ++i) {
    const auto a = static_cast<double>(rows[i - 1]);
    const auto b = static_cast<double>(rows[i]);
    distance += std::abs(a - b);
    product += (a - mean) * (b - mean);
    rising += b > a ? 1 : 0;
  }
  const auto pairs = static_cast<double>(kSize - 1);
  EXPECT_NEAR(distance / pairs / kSize, 1.0 / 3, 0.002);
  EXPECT_NEAR(product / pairs / (mean * mean / 3), 0, 0.005);
  EXPECT_NEAR(static_cast<double>(rising) / pairs, 0.5, 0.002);
}

/// Each kernel for this CPU gives the same result as the scalar code, for numbers of 10 to 62 bits
/// and up to 39 of them.
TEST(Permutation, IsTheSameByEveryInstructionSet) {
  std::vector<PermutationKernel> kernels = {encrypt_baseline};
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx2")) kernels.push_back(encrypt_avx2);
#endif
  PermutationNetwork network;
  network.keys = {~std::uint64_t{0},     0, 0x8000'0000'8000'0000,
                  0x123'4567'89AB'CDEF,  7, 0xFFFF'FFFF'0000'0001,
                  0xFEDC'BA98'7654'3210, 1};
  for (unsigned bits = 10; bits <= 62; ++bits) {
    network.low_bits = bits / 2;
    network.high_bits = bits - network.low_bits;
    network.swap = bits % 2;
    for (std::size_t count = 0; count < 40; ++count) {
      std::vector<std::uint64_t> values(count);
      for (std::size_t i = 0; i < count; ++i) {
        values[i] = (i * 0x9E37'79B9'7F4A'7C15 + bits) >> (64 - bits);
      }
      std::vector<std::uint64_t> expected = values;
      for (std::uint64_t& value : expected) value = encrypt(network, value);
      for (const PermutationKernel kernel : kernels) {
        std::vector<std::uint64_t> found = values;
        kernel(network, found.data(), found.size());
        ASSERT_EQ(found, expected) << bits << " bits, " << count << " values";
      }
    }
  }
}

TEST(Permutation, MapsPositionsInAnyOrder) {
  const Permutation order(1'000'003, 8);
  std::vector<std::int64_t> positions;
  for (std::int64_t i = 0; i < 777; ++i) positions.push_back(i * 7919 % order.size());
  std::vector<std::int64_t> rows = positions;
  order.map(rows);
  for (std::size_t i = 0; i < rows.size(); ++i) ASSERT_EQ(rows[i], order[positions[i]]);
}

TEST(Permutation, ReachesTheEndOfTheLargestSize) {
  const std::int64_t size = std::int64_t{1} << 62;
  const Permutation order(size, 1);
  std::vector<std::int64_t> rows(300);
  order.fill(size - 300, rows);
  EXPECT_THAT(rows, testing::Each(testing::AllOf(testing::Ge(0), testing::Lt(size))));
}

TEST(Permutation, RefusesInvalidSizesAndPositions) {
  EXPECT_THROW(Permutation(-1), Error);
  EXPECT_THROW(Permutation((std::int64_t{1} << 62) + 1), Error);
  std::vector<std::int64_t> rows(3);
  EXPECT_THROW(Permutation(10).fill(8, rows), Error);
  EXPECT_THROW(Permutation(10).fill(-1, rows), Error);
  EXPECT_THROW(Permutation(10).fill(11, std::span<std::int64_t>()), Error);
}

}  // namespace
}  // namespace tenfold

#include "base/checked.hpp"

#include <gtest/gtest.h>

namespace tenfold::base {
namespace {

constexpr std::uint64_t kMax = ~std::uint64_t{0};

TEST(Checked, RangesAreAcceptedUpToTheLimit) {
  EXPECT_TRUE(range_fits(0, 0, 0));
  EXPECT_TRUE(range_fits(3, 5, 8));
  EXPECT_FALSE(range_fits(3, 6, 8));
  EXPECT_FALSE(range_fits(9, 0, 8));
}

TEST(Checked, RangesThatWouldWrapDoNotFit) {
  EXPECT_FALSE(range_fits(kMax, 2, 8));
  EXPECT_FALSE(range_fits(2, kMax, 8));
}

TEST(Checked, ProductsAndSumsAreEmptyOnOverflow) {
  EXPECT_EQ(checked_mul(1ULL << 32, (1ULL << 32) - 1), ((1ULL << 32) - 1) << 32);
  EXPECT_EQ(checked_mul(1ULL << 32, 1ULL << 32), std::nullopt);
  EXPECT_EQ(checked_mul(0, kMax), 0U);
  EXPECT_EQ(checked_add(kMax - 1, 1), kMax);
  EXPECT_EQ(checked_add(kMax, 1), std::nullopt);
}

TEST(Checked, AlignUpGoesToTheNextMultiple) {
  EXPECT_EQ(align_up(0, 64), 0U);
  EXPECT_EQ(align_up(1, 64), 64U);
  EXPECT_EQ(align_up(64, 64), 64U);
}

}  // namespace
}  // namespace tenfold::base

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <vector>

#include <tenfold/error.hpp>

#include "dataset/loader/mix_pattern.hpp"

namespace tenfold {
namespace {

TEST(MixPattern, KeepsEveryPrefixWithinOneRowOfItsShare) {
  const std::vector<std::vector<double>> cases = {{1},
                                                  {1, 1},
                                                  {0.5, 0.3, 0.2},
                                                  {0.7, 0.2, 0.1},
                                                  {3, 1},
                                                  {1, 0, 2},
                                                  {0.9, 0.05, 0.05},
                                                  {1.0 / 3, 2.0 / 3},
                                                  {0.123, 0.456, 0.421},
                                                  {5, 4, 3, 2, 1}};
  for (const std::vector<double>& weights : cases) {
    const auto pattern = mix_pattern(weights);
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    std::vector<double> given(weights.size());
    for (std::size_t k = 0; k < pattern.size(); ++k) {
      ++given[pattern[k]];
      for (std::size_t i = 0; i < weights.size(); ++i) {
        ASSERT_LT(std::abs(given[i] - weights[i] / sum * static_cast<double>(k + 1)), 1 + 1e-6)
            << testing::PrintToString(weights) << " after " << k + 1;
      }
    }
  }
}

TEST(MixPattern, LengthIsTheShortestForTheShares) {
  EXPECT_THAT(mix_pattern(std::vector<double>{2, 1}), testing::SizeIs(3));
  EXPECT_THAT(mix_pattern(std::vector<double>{0.5, 0.3, 0.2}), testing::SizeIs(10));
  EXPECT_THAT(mix_pattern(std::vector<double>{std::sqrt(2.0), 1}), testing::SizeIs(65'536));
}

TEST(MixPattern, NeverTakesFromASourceWithoutWeight) {
  EXPECT_THAT(mix_pattern(std::vector<double>{1, 0}), testing::Each(0U));
}

TEST(MixPattern, RefusesInvalidWeights) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const std::vector<double>& weights :
       {std::vector<double>{}, {0, 0}, {1, -1}, {1, NAN}, {1, infinity}}) {
    EXPECT_THROW(mix_pattern(weights), Error);
  }
  try {
    mix_pattern(std::vector<double>{1, -1e-9});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.found(), "-1e-09");
  }
}

}  // namespace
}  // namespace tenfold

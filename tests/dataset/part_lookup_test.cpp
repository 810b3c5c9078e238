#include "dataset/part_lookup.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace tenfold {
namespace {

using testing::ElementsAre;

TEST(PartOfEach, IsTheLastPartThatBeginsAtOrBefore) {
  const std::vector<std::int64_t> begins = {0, 10, 10, 30};
  const std::vector<std::int64_t> numbers = {0, 9, 10, 29, 30, 1000, 3};
  // Part 1 is empty, because part 2 begins at the same number.
  EXPECT_THAT(part_of_each(begins, numbers), ElementsAre(0, 0, 2, 2, 3, 3, 0));
  EXPECT_THAT(part_of_each(std::vector<std::int64_t>{0}, numbers),
              ElementsAre(0, 0, 0, 0, 0, 0, 0));
}

TEST(PartOfEach, IsTheSameForFewPartsAndMany) {
  for (const std::int64_t count : {1, 2, 7, 8, 9, 50}) {
    std::vector<std::int64_t> begins;
    for (std::int64_t i = 0; i < count; ++i) begins.push_back(i * i);
    std::vector<std::int64_t> numbers;
    for (std::int64_t i = 0; i < 3000; ++i) numbers.push_back(i * 7 % 3001);
    const std::vector<std::uint32_t> parts = part_of_each(begins, numbers);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const auto part = static_cast<std::int64_t>(parts[i]);
      EXPECT_LE(part * part, numbers[i]);
      EXPECT_TRUE(part + 1 == count || (part + 1) * (part + 1) > numbers[i]);
    }
  }
}

}  // namespace
}  // namespace tenfold

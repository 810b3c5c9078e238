#include "core/aliases.hpp"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace tenfold {
namespace {

Tensor zeros(Shape shape) { return Tensor::zeros(DType::float32, std::move(shape)); }

TEST(AliasFinder, TheFirstLeafOverTheSameBytesHoldsThem) {
  const Tensor a = zeros({4});
  const Tensor b = zeros({4});
  const std::vector<std::pair<std::string, Leaf>> leaves = {
      {"a", a}, {"b", b}, {"b2", b}, {"a2", a}, {"half", a.narrow(0, 2)}, {"a3", a}};
  const auto targets =
      alias_targets(leaves, [](const auto& entry) -> const Leaf& { return entry.second; });
  EXPECT_EQ(targets, (std::vector<std::size_t>{0, 1, 1, 0, 4, 0}));
}

TEST(AliasFinder, LeavesWithoutElementsShareWithNobody) {
  const Tensor empty = zeros({0, 3});
  AliasFinder finder;
  EXPECT_EQ(finder.add(empty), 0u);
  EXPECT_EQ(finder.add(empty), 1u);
}

}  // namespace
}  // namespace tenfold

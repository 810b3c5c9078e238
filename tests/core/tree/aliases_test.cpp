#include "core/tree/aliases.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "core/tree/assembled_source.hpp"
#include "core/tree/fake_source.hpp"

namespace tenfold {
namespace {

Tensor zeros(Shape shape) { return Tensor::zeros(DType::float32, std::move(shape)); }

TEST(AliasFinder, TheFirstLeafOverTheSameBytesIsTheTarget) {
  const Tensor a = zeros({4});
  const Tensor b = zeros({4});
  const std::vector<std::pair<std::string, Leaf>> leaves = {
      {"a", a}, {"b", b}, {"b2", b}, {"a2", a}, {"half", a.narrow(0, 2)}, {"a3", a}};
  const auto targets =
      alias_targets(leaves, [](const auto& entry) -> const Leaf& { return entry.second; });
  EXPECT_EQ(targets, (std::vector<std::size_t>{0, 1, 1, 0, 4, 0}));
}

TEST(AliasFinder, DistinguishesFilesByTheFullDeviceNumber) {
  AliasFinder finder;
  std::size_t number = 0;
  for (const std::uint64_t device : {std::uint64_t{1}, std::uint64_t{1} << 16U | 1U,
                                     std::uint64_t{1} << 32U | 1U, std::uint64_t{1} << 63U | 1U}) {
    const auto source = std::make_shared<FakeSource>(Buffer());
    source->device = device;
    EXPECT_EQ(finder.add(stored_leaf(DType::uint8, {4}, source, 0)), number++);
  }
}

TEST(AliasFinder, ComparesThePiecesOfAssembledTensors) {
  const auto source = std::make_shared<FakeSource>(Buffer());
  const auto whole_of = [&](std::uint64_t first, std::uint64_t second) {
    return AssembledSource::assemble(DType::uint8, {8},
                                     {{{0}, stored_leaf(DType::uint8, {4}, source, first)},
                                      {{4}, stored_leaf(DType::uint8, {4}, source, second)}},
                                     "whole");
  };
  AliasFinder finder;
  EXPECT_EQ(finder.add(whole_of(0, 4)), 0U);
  EXPECT_EQ(finder.add(whole_of(4, 0)), 1U);
  EXPECT_EQ(finder.add(whole_of(0, 4)), 0U);
}

TEST(AliasFinder, LeavesWithoutElementsShareNoStorage) {
  const Tensor empty = zeros({0, 3});
  AliasFinder finder;
  EXPECT_EQ(finder.add(empty), 0u);
  EXPECT_EQ(finder.add(empty), 1u);
}

}  // namespace
}  // namespace tenfold

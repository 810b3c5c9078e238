#include "base/zero_fill.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace tenfold::base {
namespace {

TEST(ZeroFill, ZeroesItsBytesAndNoOthers) {
  for (const std::size_t begin : {0U, 1U, 15U, 63U, 64U}) {
    for (const std::size_t size : {0U, 1U, 16U, 63U, 64U, 65U, 1000U, 4096U}) {
      std::vector<std::byte> bytes(8192, std::byte{7});
      zero_past_cache(std::span(bytes).subspan(begin, size));
      const auto zeros = std::ranges::count(bytes, std::byte{0});
      EXPECT_EQ(static_cast<std::size_t>(zeros), size) << begin;
      EXPECT_TRUE(std::ranges::all_of(std::span(bytes).subspan(begin, size),
                                      [](std::byte byte) { return byte == std::byte{0}; }));
    }
  }
}

}  // namespace
}  // namespace tenfold::base

#include "formats/safetensors/stack.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/tree/leaf_source.hpp"
#include "formats/safetensors/support.hpp"

namespace tenfold::test {

using namespace detail::formats;
namespace {

/// A source whose byte at each offset is the offset modulo 251. Counts the bytes that are read.
class CountingSource final : public LeafSource {
 public:
  Buffer map(const Leaf& leaf) override {
    Buffer buffer = Buffer::allocate(static_cast<std::size_t>(leaf.nbytes()));
    read(leaf, 0, buffer.mutable_bytes());
    return buffer;
  }
  void read(const Leaf&, std::uint64_t offset_bytes, std::span<std::byte> into) override {
    for (std::size_t i = 0; i < into.size(); ++i) {
      into[i] = static_cast<std::byte>((offset_bytes + i) % 251);
    }
    num_bytes += into.size();
  }
  base::Where where(const Leaf&) const override { return "counting"; }

  std::uint64_t num_bytes = 0;
};

/// Reads and checks `count` bytes, starting at byte `begin`, of the slice at index 1 of dimension
/// `dim`. Returns how many bytes were read from the source.
std::uint64_t bytes_read(const Shape& shape, std::int64_t dim, std::size_t begin,
                         std::size_t count) {
  const auto source = std::make_shared<CountingSource>();
  const Leaf dense = stored_leaf(DType::uint8, shape, source, 0);
  const Leaf slice = safetensors::slice_leaf(dense, {{dim, 1}});
  std::vector<std::byte> found(count);
  slice.read(begin, found);
  std::uint64_t run = 1;
  for (std::size_t d = static_cast<std::size_t>(dim) + 1; d < shape.size(); ++d) {
    run *= static_cast<std::uint64_t>(shape[d]);
  }
  const std::uint64_t stride =
      run * static_cast<std::uint64_t>(shape[static_cast<std::size_t>(dim)]);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t at = (begin + i) / run * stride + run + (begin + i) % run;
    EXPECT_EQ(found[i], static_cast<std::byte>(at % 251)) << i;
  }
  return source->num_bytes;
}

TEST(SafetensorsStack, RunsFarApartAreReadWithoutTheBytesBetweenThem) {
  EXPECT_EQ(bytes_read({8, 1000, 512}, 1, 0, 8 * 512), 8U * 512);
  EXPECT_EQ(bytes_read({8, 1000, 1, 512}, 1, 100, 1000), 1000U);
  EXPECT_EQ(bytes_read({8, 100'000}, 1, 0, 8), 8U);
  EXPECT_EQ(bytes_read({2, 8, 1000, 512}, 2, 0, 2 * 8 * 512), 2U * 8 * 512);
}

TEST(SafetensorsStack, ShortRunsCloseTogetherAreReadInOneRead) {
  EXPECT_EQ(bytes_read({100, 4, 10}, 1, 0, 1000), 99U * 40 + 10);
  EXPECT_EQ(bytes_read({100, 4, 10}, 1, 15, 10), 40U - 5 + 5) << "nothing beyond the last byte";
  EXPECT_EQ(bytes_read({100, 4, 10}, 0, 7, 20), 20U);
}

TEST(SafetensorsStack, OnlyPartsInTheRangeAreRead) {
  const auto source = std::make_shared<CountingSource>();
  std::vector<Leaf> parts(100, stored_leaf(DType::uint8, {3, 10}, source, 0));
  const auto check = [&](std::int64_t dim, std::size_t begin, std::size_t count) {
    const Leaf stack = safetensors::stack_leaves(parts, dim);
    std::vector<std::byte> found(count);
    source->num_bytes = 0;
    stack.read(begin, found);
    const std::size_t run = dim == 0 ? 30 : 10;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t at = begin + i;
      EXPECT_EQ(found[i], static_cast<std::byte>(at / (100 * run) * run + at % run)) << at;
    }
    return source->num_bytes;
  };
  EXPECT_EQ(check(0, 0, 3000), 3000U);
  EXPECT_EQ(check(0, 60, 30), 30U);
  EXPECT_EQ(check(0, 75, 30), 60U);
  EXPECT_EQ(check(0, 2999, 1), 30U);
  EXPECT_EQ(check(1, 0, 3000), 3000U);
  EXPECT_EQ(check(1, 995, 10), 20U) << "the last part of row 0, the first of row 1";
  EXPECT_EQ(check(1, 990, 1020), 1020U);
}

}  // namespace
}  // namespace tenfold::test

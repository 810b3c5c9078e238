#include "base/hash/checksum.hpp"

#include <gtest/gtest.h>

#include <random>
#include <string_view>
#include <vector>

#include "base/hash/xxh3_kernel.hpp"

namespace tenfold::base {
namespace {

std::vector<std::byte> random_bytes(std::size_t size_bytes, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(size_bytes);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random() & 255);
  return bytes;
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// The input of xxHash's sanity check (tests/sanity_test.c), for which xxHash publishes the hashes.
std::vector<std::byte> sanity_buffer(std::size_t size_bytes) {
  std::uint64_t state = 2654435761U;
  std::vector<std::byte> bytes(size_bytes);
  for (std::byte& b : bytes) {
    b = static_cast<std::byte>(state >> 56);
    state *= 11400714785074694797ULL;
  }
  return bytes;
}

TEST(Xxh3, EmptyInputHasThePublishedHash) { EXPECT_EQ(xxh3({}), 0x2d06800538d394c2ULL); }

TEST(Xxh3, AgreesWithThePublishedVectors) {
  EXPECT_EQ(xxh3(sanity_buffer(1)), 0xC44BDFF4074EECDBULL);
  EXPECT_EQ(xxh3(sanity_buffer(6)), 0x27B56A84CD2D7325ULL);
  EXPECT_EQ(xxh3(sanity_buffer(12)), 0xA713DAF0DFBB77E7ULL);
  EXPECT_EQ(xxh3(sanity_buffer(24)), 0xA3FE70BF9D3510EBULL);
  EXPECT_EQ(xxh3(sanity_buffer(48)), 0x397DA259ECBA1F11ULL);
  EXPECT_EQ(xxh3(sanity_buffer(80)), 0xBCDEFBBB2C47C90AULL);
  EXPECT_EQ(xxh3(sanity_buffer(195)), 0xCD94217EE362EC3AULL);
  EXPECT_EQ(xxh3(sanity_buffer(2048)), 0xDD59E2C3A5F038E0ULL);
  EXPECT_EQ(xxh3(sanity_buffer(2240)), 0x6E73A90539CF2948ULL);
  EXPECT_EQ(xxh3(sanity_buffer(2367)), 0xCB37AEB9E5D361EDULL);
}

TEST(Xxh3, EveryKernelThatThisCpuRunsAgrees) {
  std::vector<const Xxh3Kernel*> kernels = {&kXxh3Baseline};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) kernels.push_back(&kXxh3Avx2);
#endif
  for (const int size : {0, 1, 16, 17, 128, 129, 240, 241, 1023, 1024, 1025, 70'001}) {
    const auto bytes = random_bytes(static_cast<std::size_t>(size), 3);
    for (const Xxh3Kernel* kernel : kernels) {
      EXPECT_EQ(kernel->hash(bytes.data(), bytes.size()), xxh3(bytes)) << size;
    }
  }
}

TEST(Xxh3, StreamEqualsOneShotForRandomSplits) {
  const auto bytes = random_bytes(100'003, 1);
  std::mt19937 random(2);
  for (int round = 0; round < 100; ++round) {
    const std::size_t size = random() % (bytes.size() + 1);
    const auto whole = std::span(bytes).first(size);
    Xxh3Stream stream;
    for (std::size_t at = 0; at < size;) {
      const std::size_t most = round % 2 == 0 ? 400 : 40'000;
      const std::size_t piece = std::min<std::size_t>(random() % most, size - at);
      stream.update(whole.subspan(at, piece));
      at += piece;
    }
    EXPECT_EQ(stream.digest(), xxh3(whole)) << "round " << round;
  }
}

TEST(Xxh3, StreamCanBeResetAndMoved) {
  Xxh3Stream stream;
  stream.update(bytes_of("something else"));
  stream.reset();
  Xxh3Stream moved = std::move(stream);
  moved.update({});
  moved.update(bytes_of("abc"));
  EXPECT_EQ(moved.digest(), xxh3(bytes_of("abc")));
  EXPECT_EQ(moved.digest(), xxh3(bytes_of("abc")));
}

TEST(Xxh3, OneChangedBitChangesTheHash) {
  auto bytes = random_bytes(5000, 4);
  const std::uint64_t before = xxh3(bytes);
  bytes[4321] ^= std::byte{1};
  EXPECT_NE(xxh3(bytes), before);
}

TEST(Xxh3, SeedsGiveDifferentHashes) {
  EXPECT_EQ(xxh3_seeded(bytes_of("key"), 0), xxh3(bytes_of("key")));
  EXPECT_NE(xxh3_seeded(bytes_of("key"), 1), xxh3_seeded(bytes_of("key"), 2));
}

TEST(Hex16, IsSixteenLowerCaseDigits) {
  EXPECT_EQ(hex16(0), "0000000000000000");
  EXPECT_EQ(hex16(0xFEDCBA9876543210ULL), "fedcba9876543210");
}

TEST(BlockSums, HashesEachBlockAndTheRest) {
  const auto bytes = random_bytes(2 * kChecksumBlockBytes + 1000, 5);
  const std::span<const std::byte> all(bytes);
  const auto block = static_cast<std::size_t>(kChecksumBlockBytes);
  const std::vector<std::uint64_t> expected = {
      xxh3(all.first(block)), xxh3(all.subspan(block, block)), xxh3(all.subspan(2 * block))};
  BlockSums sums;
  EXPECT_TRUE(sums.checksums().empty());
  sums.add(all.first(7));
  sums.add(all.subspan(7));
  EXPECT_EQ(sums.checksums(), expected);
  EXPECT_EQ(sums.size_bytes(), bytes.size());

  EXPECT_EQ(sums.drop_whole_blocks(), 2 * kChecksumBlockBytes);
  EXPECT_EQ(sums.checksums(), std::vector<std::uint64_t>{expected[2]});
  sums.add(all.subspan(1000, block - 1000));
  EXPECT_EQ(sums.checksums().size(), 1U);
  EXPECT_EQ(sums.size_bytes(), kChecksumBlockBytes);
}

}  // namespace
}  // namespace tenfold::base

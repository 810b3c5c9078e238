#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "dataset/loader/buffer_pool.hpp"

namespace tenfold {
namespace {

TEST(BufferPool, ReusesABlockAfterItsLastBufferIsDestroyed) {
  const BufferPool pool;
  std::optional<Buffer> first = pool.take(10'000);
  const std::byte* address = first->data();
  Buffer slice = first->slice(64, 64);
  first.reset();
  EXPECT_NE(pool.take(10'000).data(), address) << "a slice still keeps it";
  slice = {};
  std::vector<Buffer> held = {pool.take(10'000), pool.take(10'000)};
  EXPECT_TRUE(held[0].data() == address || held[1].data() == address);
}

TEST(BufferPool, BuffersInUseDoNotOverlap) {
  const BufferPool pool;
  std::vector<Buffer> held;
  for (std::size_t i = 0; i < 40; ++i) held.push_back(pool.take(4096 * (1 + i % 3)));
  for (std::size_t i = 0; i < held.size(); ++i) {
    for (std::byte& byte : held[i].mutable_bytes()) byte = static_cast<std::byte>(i);
  }
  for (std::size_t i = 0; i < held.size(); ++i) {
    for (const std::byte byte : held[i].bytes()) ASSERT_EQ(byte, static_cast<std::byte>(i));
  }
}

TEST(BufferPool, BlocksAreAlignedTo64Bytes) {
  const BufferPool pool;
  for (const std::size_t size : {1U, 4096U, 3U << 20U}) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pool.take(size).data()) % 64, 0U);
  }
  EXPECT_EQ(pool.take(0).size_bytes(), 0U);
}

/// Bytes that a pool keeps after 100 blocks were returned.
std::size_t bytes_kept_of_hundred(std::size_t block_bytes) {
  const BufferPool pool;
  {
    std::vector<Buffer> held;
    for (int i = 0; i < 100; ++i) held.push_back(pool.take(block_bytes));
  }
  return pool.free_bytes();
}

TEST(BufferPool, LimitsTheBytesItKeeps) {
  EXPECT_EQ(bytes_kept_of_hundred(4096), 64U * 4096U);
  EXPECT_EQ(bytes_kept_of_hundred(1U << 20U), 16U << 20U);
}

TEST(BufferPool, ManySmallBlocksDoNotEvictALargeOne) {
  const BufferPool pool;
  Buffer large = pool.take(8U << 20U);
  const std::byte* address = large.data();
  large = {};
  {
    std::vector<Buffer> held;
    for (int i = 0; i < 200; ++i) held.push_back(pool.take(40'000));
  }
  EXPECT_EQ(pool.take(8U << 20U).data(), address);
}

TEST(BufferPool, KeepsBuffersAliveThatOutliveIt) {
  Buffer kept;
  {
    const BufferPool pool;
    kept = pool.take(4096);
  }
  kept.mutable_data()[4095] = std::byte{1};
  EXPECT_EQ(kept.data()[4095], std::byte{1});
}

TEST(BufferPool, UsesTheSmallestSufficientSuppliedBlockOnce) {
  auto supplied = std::make_shared<SuppliedMemory>();
  const BufferPool pool(supplied);
  const Buffer large = Buffer::allocate(10'000);
  const Buffer small = Buffer::allocate(1000);
  supplied->supply(large);
  supplied->supply(small);
  EXPECT_EQ(pool.take(900).data(), small.data());
  EXPECT_EQ(pool.take(900).data(), large.data());
  EXPECT_NE(pool.take(900).data(), large.data()) << "it came back, and is not written again";
  EXPECT_EQ(supplied->requested(), (std::vector<std::size_t>{900, 900, 900}));
  EXPECT_TRUE(supplied->requested().empty());
}

TEST(BufferPool, ReleasesSuppliedBlocksWithTheirLastBuffer) {
  auto supplied = std::make_shared<SuppliedMemory>();
  const BufferPool pool(supplied);
  std::vector<std::byte> memory(100);
  const auto owner = std::make_shared<int>();
  supplied->supply(Buffer(std::span(memory), owner));
  Buffer taken = pool.take(80);
  Buffer slice = taken.slice(8, 8);
  taken = {};
  EXPECT_EQ(owner.use_count(), 2) << "a slice still keeps it";
  slice = {};
  EXPECT_EQ(owner.use_count(), 1);
}

TEST(BufferPool, LimitsTheNumberOfRequestedSizes) {
  SuppliedMemory supplied;
  for (int i = 0; i < 5000; ++i) static_cast<void>(supplied.take(100));
  EXPECT_EQ(supplied.requested(), std::vector<std::size_t>(1024, 100));
  static_cast<void>(supplied.take(200));
  EXPECT_EQ(supplied.requested(), std::vector<std::size_t>{200});
}

TEST(BufferPool, LimitsTheNumberOfSuppliedBlocks) {
  SuppliedMemory supplied;
  const auto owner = std::make_shared<int>();
  std::vector<std::byte> memory(10);
  for (int i = 0; i < 1000; ++i) supplied.supply(Buffer(std::span(memory), owner));
  EXPECT_LE(owner.use_count(), 65);
}

#if !TENFOLD_TSAN
TEST(BufferPool, SuppliedMemoryDoesNotHangInAChildThatWasForkedWhileItWasUsed) {
  SuppliedMemory supplied;
  std::atomic<bool> is_done{false};
  std::thread user([&] {
    const Buffer block = Buffer::allocate(10);
    while (!is_done) {
      supplied.supply(block);
      static_cast<void>(supplied.take(100));
    }
  });
  for (int i = 0; i < 100; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(20);
      supplied.supply(Buffer::allocate(10));
      ::_exit(supplied.take(10).has_value() && !supplied.requested().empty() ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    if (status != 0) break;
  }
  is_done = true;
  user.join();
}
#endif

TEST(BufferPool, IsSharedByThreads) {
  const BufferPool pool;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&pool, t] {
      for (int i = 0; i < 200; ++i) {
        const Buffer buffer = pool.take(8192);
        buffer.mutable_data()[0] = static_cast<std::byte>(t);
        buffer.mutable_data()[8191] = static_cast<std::byte>(t);
        ASSERT_EQ(buffer.data()[0], static_cast<std::byte>(t));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace tenfold

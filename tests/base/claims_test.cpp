#include "base/claims.hpp"

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace tenfold::base {
namespace {

TEST(Claims, EachItemIsDoneOnceBeforeEnsureReturns) {
  constexpr std::size_t kItems = 1000;
  Claims claims(kItems);
  std::vector<int> times(kItems, 0);  // not atomic: a reader after ensure() must see the write
  const auto come_by = [&](bool waits) {
    for (std::size_t i = 0; i < kItems; ++i) {
      const auto work = [&] { ++times[i]; };
      if (!waits) {
        claims.do_once(i, work);
        continue;
      }
      claims.ensure(i, work);
      EXPECT_EQ(times[i], 1);
    }
  };
  std::vector<std::thread> threads;
  for (const bool waits : {true, false, true, false}) threads.emplace_back(come_by, waits);
  for (std::thread& thread : threads) thread.join();
  for (const int count : times) EXPECT_EQ(count, 1);
}

TEST(Claims, EnsureWaitsForTheThreadThatHasBegun) {
  Claims claims(1);
  std::atomic<bool> begun{false};
  bool done = false;
  std::thread first([&] {
    claims.do_once(0, [&] {
      begun = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      done = true;
    });
  });
  while (!begun) std::this_thread::yield();
  claims.do_once(0, [] { ADD_FAILURE() << "done twice"; });
  claims.ensure(0, [] { ADD_FAILURE() << "done twice"; });
  EXPECT_TRUE(done);
  first.join();
}

}  // namespace
}  // namespace tenfold::base

#include "base/once_flags.hpp"

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace tenfold::base {
namespace {

TEST(OnceFlags, EachItemIsDoneOnceAndIsDoneWhenEnsureReturns) {
  constexpr std::size_t kItems = 1000;
  OnceFlags flags(kItems);
  std::vector<int> times(kItems, 0);  // not atomic, because ensure() must make the write visible
  const auto request_all = [&](bool waits) {
    for (std::size_t i = 0; i < kItems; ++i) {
      const auto work = [&] { ++times[i]; };
      if (!waits) {
        flags.do_once(i, work);
        continue;
      }
      flags.ensure(i, work);
      EXPECT_EQ(times[i], 1);
    }
  };
  std::vector<std::thread> threads;
  for (const bool waits : {true, false, true, false}) threads.emplace_back(request_all, waits);
  for (std::thread& thread : threads) thread.join();
  for (const int count : times) EXPECT_EQ(count, 1);
}

TEST(OnceFlags, EnsureWaitsForTheThreadThatHasBegun) {
  OnceFlags flags(1);
  std::atomic<bool> begun{false};
  bool done = false;
  std::thread first([&] {
    flags.do_once(0, [&] {
      begun = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      done = true;
    });
  });
  while (!begun) std::this_thread::yield();
  flags.do_once(0, [] { ADD_FAILURE() << "done twice"; });
  flags.ensure(0, [] { ADD_FAILURE() << "done twice"; });
  EXPECT_TRUE(done);
  first.join();
}

}  // namespace
}  // namespace tenfold::base

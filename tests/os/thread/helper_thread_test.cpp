#include "os/thread/helper_thread.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/sanitizers.hpp"
#include "os/thread/thread_pool.hpp"

namespace tenfold::os {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kPatience = 20s;

void work_for(Clock::duration time) {
  const auto end = Clock::now() + time;
  while (Clock::now() < end) {
  }
}

/// Calls run_with_helper() once with short work. Returns the number of threads that ran ranges.
std::size_t num_threads_of_a_call() {
  std::mutex mutex;
  std::set<std::thread::id> threads;
  start_helper();
  run_with_helper(4, 1, [&](std::size_t, std::size_t) {
    work_for(10us);
    const std::lock_guard lock(mutex);
    threads.insert(std::this_thread::get_id());
  });
  return threads.size();
}

/// Repeats calls until the helper thread runs ranges, too. Returns false if it never does.
bool wakes_helper() {
  const auto end = Clock::now() + kPatience;
  while (Clock::now() < end) {
    if (num_threads_of_a_call() == 2) return true;
  }
  return false;
}

TEST(HelperThread, EveryItemIsInExactlyOneRange) {
  for (int round = 0; round < 300; ++round) {
    for (const std::size_t count : {0U, 1U, 63U, 64U, 65U, 256U, 1000U}) {
      std::vector<std::atomic<int>> calls(count);
      start_helper();
      run_with_helper(count, 64, [&](std::size_t begin, std::size_t end) {
        EXPECT_LE(end, count);
        for (std::size_t i = begin; i < end; ++i) ++calls[i];
      });
      for (const auto& n : calls) ASSERT_EQ(n, 1);
    }
  }
}

TEST(HelperThread, RunsRangesOfConsecutiveCalls) {
  if (num_threads_for(0) < 2) GTEST_SKIP() << "one core";
  EXPECT_TRUE(wakes_helper());
}

TEST(HelperThread, ParksBetweenDistantCalls) {
  if (num_threads_for(0) < 2) GTEST_SKIP() << "one core";
  ASSERT_TRUE(wakes_helper());
  // The helper thread parks only when the kernel schedules it, so several attempts may be needed.
  const auto end = Clock::now() + kPatience;
  int num_alone = 0;
  while (num_alone < 10 && Clock::now() < end) {
    std::this_thread::sleep_for(5ms);
    num_alone = num_threads_of_a_call() == 1 ? num_alone + 1 : 0;
  }
  EXPECT_EQ(num_alone, 10);
}

TEST(HelperThread, StaysParkedIfOneThreadIsAllowed) {
  std::this_thread::sleep_for(5ms);
  ::setenv("TENFOLD_NUM_THREADS", "1", 1);
  // The helper thread may still be spinning after a previous test.
  const auto end = Clock::now() + kPatience;
  int num_alone = 0;
  while (num_alone < 1000 && Clock::now() < end) {
    const bool alone = num_threads_of_a_call() == 1;
    if (!alone) std::this_thread::sleep_for(5ms);
    num_alone = alone ? num_alone + 1 : 0;
  }
  ::unsetenv("TENFOLD_NUM_THREADS");
  EXPECT_EQ(num_alone, 1000);
}

TEST(HelperThread, AnExceptionOfEitherThreadReachesTheCallerAndEndsTheWork) {
  const auto caller = std::this_thread::get_id();
  for (const bool of_caller : {true, false}) {
    if (!of_caller && num_threads_for(0) < 2) continue;
    // Repeat the call, because the other thread may do the rest of the work before the thread that
    // throws is scheduled.
    bool is_ended = false;
    for (const auto end = Clock::now() + kPatience; !is_ended && Clock::now() < end;) {
      std::atomic<int> calls = 0;
      start_helper();
      try {
        run_with_helper(1000, 1, [&](std::size_t, std::size_t) {
          ++calls;
          work_for(1us);
          if ((std::this_thread::get_id() == caller) == of_caller) throw std::range_error("here");
        });
      } catch (const std::range_error&) {
        is_ended = calls < 1000;
      }
    }
    EXPECT_TRUE(is_ended) << of_caller;
    EXPECT_TRUE(num_threads_for(0) < 2 || wakes_helper()) << "the helper thread is lost";
  }
}

TEST(HelperThread, ManyConcurrentCallersFinish) {
  std::atomic<int> calls = 0;
  std::vector<std::thread> callers;
  for (int t = 0; t < 4; ++t) {
    callers.emplace_back([&] {
      for (int round = 0; round < 2000; ++round) {
        start_helper();
        run_with_helper(8, 1, [&](std::size_t begin, std::size_t end) {
          calls += static_cast<int>(end - begin);
        });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(calls, 4 * 2000 * 8);
}

TEST(HelperThread, AForkedChildHasItsOwn) {
#if TENFOLD_TSAN
  GTEST_SKIP() << "TSan starts no threads in the child of a fork";
#elif TENFOLD_ASAN
  GTEST_SKIP() << "a lock of ASan's allocator that is held during a fork blocks the child";
#endif
  if (num_threads_for(0) < 2) GTEST_SKIP() << "one core";
  std::atomic<bool> stop = false;
  std::thread busy([&] {
    while (!stop) num_threads_of_a_call();
  });
  for (int round = 0; round < 20; ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(30);
      ::_exit(wakes_helper() ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
  }
  stop = true;
  busy.join();
}

}  // namespace
}  // namespace tenfold::os

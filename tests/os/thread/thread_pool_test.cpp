#include "os/thread/thread_pool.hpp"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <tenfold/error.hpp>

#include "base/sanitizers.hpp"

namespace tenfold::os {
namespace {

using namespace std::chrono_literals;

/// A barrier for `count` threads, which proves that they run concurrently.
class Meeting {
 public:
  explicit Meeting(int count) : missing_(count) {}
  /// Returns false if the other threads do not arrive within 20 s.
  bool join() {
    --missing_;
    const auto end = std::chrono::steady_clock::now() + 20s;
    while (missing_ > 0) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::yield();
    }
    return true;
  }

 private:
  std::atomic<int> missing_;
};

TEST(ParallelFor, CallsEachItemOnce) {
  for (const std::size_t count : {0U, 1U, 2U, 3U, 1000U}) {
    for (const int threads : {-1, 0, 1, 2, 7}) {
      std::vector<std::atomic<int>> calls(count);
      parallel_for(count, threads, [&](std::size_t i) { ++calls[i]; });
      for (const auto& n : calls) EXPECT_EQ(n, 1);
    }
  }
}

TEST(ParallelFor, UsesTheRequestedNumberOfThreadsAndNamesThem) {
  Meeting meeting(4);
  std::mutex mutex;
  std::set<std::string> names;
  const auto caller = std::this_thread::get_id();
  parallel_for(4, 4, [&](std::size_t) {
    EXPECT_TRUE(meeting.join());
    if (std::this_thread::get_id() == caller) return;
    std::array<char, 32> name{};
    pthread_getname_np(pthread_self(), name.data(), name.size());
    const std::lock_guard lock(mutex);
    names.insert(name.data());
  });
  EXPECT_EQ(names.size(), 3U);
  for (const std::string& name : names) EXPECT_TRUE(name.starts_with("tenfold-")) << name;
}

TEST(ParallelFor, ThreadsBlockAllSignalsExceptThoseOfFaults) {
  Meeting meeting(2);
  const auto caller = std::this_thread::get_id();
  parallel_for(2, 2, [&](std::size_t) {
    EXPECT_TRUE(meeting.join());
    sigset_t blocked;
    ASSERT_EQ(pthread_sigmask(SIG_BLOCK, nullptr, &blocked), 0);
    const int is_pool_thread = std::this_thread::get_id() == caller ? 0 : 1;
    for (const int number : {SIGINT, SIGTERM, SIGUSR1, SIGPROF}) {
      EXPECT_EQ(sigismember(&blocked, number), is_pool_thread) << number;
    }
    for (const int number : {SIGBUS, SIGFPE, SIGILL, SIGSEGV}) {
      EXPECT_EQ(sigismember(&blocked, number), 0) << number;
    }
  });
}

TEST(ParallelFor, OneThreadRunsInOrderOnTheCaller) {
  std::vector<std::size_t> order;
  parallel_for(5, 1, [&](std::size_t i) { order.push_back(i); });
  EXPECT_EQ(order, (std::vector<std::size_t>{0, 1, 2, 3, 4}));
}

TEST(ParallelFor, RethrowsAnExceptionAndSkipsOtherItems) {
  std::atomic<int> calls = 0;
  try {
    parallel_for(100'000, 3, [&](std::size_t i) {
      ++calls;
      if (i == 10) throw std::runtime_error("item 10");
      // Without this pause, the other threads may finish all items while the thread that throws is
      // not scheduled.
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
    FAIL() << "expected an exception";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "item 10");
  }
  EXPECT_LT(calls, 100'000);
  // The pool can be used after an exception.
  std::atomic<int> after = 0;
  parallel_for(10, 3, [&](std::size_t) { ++after; });
  EXPECT_EQ(after, 10);
}

TEST(ParallelFor, AnExceptionOfAnotherThreadReachesTheCaller) {
  Meeting meeting(2);
  const auto caller = std::this_thread::get_id();
  EXPECT_THROW(parallel_for(2, 2,
                            [&](std::size_t) {
                              EXPECT_TRUE(meeting.join());
                              if (std::this_thread::get_id() != caller) {
                                throw std::invalid_argument("helper");
                              }
                            }),
               std::invalid_argument);
}

TEST(ParallelFor, TheCallbackBetweenItemsRunsOnTheCallerWhileItWaits) {
  const auto caller = std::this_thread::get_id();
  std::atomic<int> polls = 0;
  Meeting meeting(2);
  std::atomic<bool> done = false;
  parallel_for(
      2, 2,
      [&](std::size_t) {
        EXPECT_TRUE(meeting.join());
        if (std::this_thread::get_id() == caller) return;
        // The caller has no item left, so it must poll until this item ends.
        const auto end = std::chrono::steady_clock::now() + 20s;
        while (polls < 4 && std::chrono::steady_clock::now() < end)
          std::this_thread::sleep_for(1ms);
        done = true;
      },
      [&] {
        EXPECT_EQ(std::this_thread::get_id(), caller);
        ++polls;
      });
  EXPECT_TRUE(done);
  EXPECT_GE(polls, 4);
}

TEST(ParallelFor, TheCallbackBetweenItemsIsNotCalledAgainAfterItThrew) {
  const auto caller = std::this_thread::get_id();
  Meeting meeting(2);
  int calls = 0;
  EXPECT_THROW(parallel_for(
                   2, 2,
                   [&](std::size_t) {
                     EXPECT_TRUE(meeting.join());
                     if (std::this_thread::get_id() != caller) std::this_thread::sleep_for(300ms);
                   },
                   [&] {
                     ++calls;
                     throw std::runtime_error("stop");
                   }),
               std::runtime_error);
  EXPECT_EQ(calls, 1);
}

TEST(ParallelFor, AnExceptionOfTheCallbackBetweenItemsStopsTheRest) {
  for (const int threads : {1, 3}) {
    std::atomic<int> calls = 0;
    EXPECT_THROW(parallel_for(
                     10'000, threads,
                     [&](std::size_t) {
                       ++calls;
                       std::this_thread::sleep_for(1ms);
                     },
                     [] { throw std::runtime_error("stop"); }),
                 std::runtime_error);
    EXPECT_LT(calls, 10'000);
  }
}

TEST(ParallelFor, NestedCallsRunOnTheCallingThread) {
  std::atomic<int> calls = 0;
  parallel_for(4, 2, [&](std::size_t) {
    const auto outer = std::this_thread::get_id();
    parallel_for(8, 4, [&](std::size_t) {
      EXPECT_EQ(std::this_thread::get_id(), outer);
      ++calls;
    });
  });
  EXPECT_EQ(calls, 32);
}

TEST(ParallelFor, ManyCallersShareThePool) {
  std::atomic<int> calls = 0;
  std::vector<std::thread> callers;
  for (int t = 0; t < 6; ++t) {
    callers.emplace_back([&] {
      for (int round = 0; round < 200; ++round) {
        parallel_for(5, 3, [&](std::size_t) { ++calls; });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(calls, 6 * 200 * 5);
}

TEST(ParallelFor, WorksInTheChildOfAForkWhileThePoolIsBusy) {
#if TENFOLD_TSAN
  GTEST_SKIP() << "TSan starts no threads in the child of a fork";
#elif TENFOLD_ASAN
  GTEST_SKIP() << "a lock of ASan's allocator that is held during a fork blocks the child";
#endif
  std::atomic<bool> stop = false;
  std::thread busy([&] {
    while (!stop) parallel_for(8, 3, [](std::size_t) {});
  });
  for (int round = 0; round < 20; ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(20);
      std::atomic<int> calls = 0;
      parallel_for(8, 3, [&](std::size_t) { ++calls; });
      ::_exit(calls == 8 ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
  }
  stop = true;
  busy.join();
}

TEST(NumThreads, ArgumentOverridesEnvironmentAndEnvironmentOverridesCores) {
  EXPECT_EQ(num_threads_for(3), 3);
  EXPECT_THROW(num_threads_for(-1), Error);
  ::setenv("TENFOLD_NUM_THREADS", "5", 1);
  EXPECT_EQ(num_threads_for(0), 5);
  EXPECT_EQ(num_threads_for(2), 2);
  EXPECT_EQ(num_threads_for(1000), 256);
  ::setenv("TENFOLD_NUM_THREADS", "nonsense", 1);
  const int cores = num_threads_for(0);
  ::unsetenv("TENFOLD_NUM_THREADS");
  EXPECT_EQ(num_threads_for(0), cores);
  EXPECT_GE(cores, 1);
  EXPECT_LE(cores, 8);
}

}  // namespace
}  // namespace tenfold::os

#include "os/thread/background.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "base/sanitizers.hpp"
#include "os/fs/directory.hpp"
#include "os/fs/file.hpp"
#include "support/temporary_folder.hpp"

namespace tenfold::os {
namespace {

using namespace std::chrono_literals;

/// True if `done` returns true within 20 s.
template <class Condition>
bool eventually(const Condition& done) {
  const auto end = std::chrono::steady_clock::now() + 20s;
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

TEST(RunInBackground, CallsEachItemOnceOnOtherThreads) {
  struct Calls {
    std::array<std::atomic<int>, 100> of_item{};
    std::atomic<int> total{0};
    std::atomic<int> on_caller{0};
  };
  const auto calls = std::make_shared<Calls>();
  run_in_background(100, 3, [calls, caller = std::this_thread::get_id()](std::size_t i) {
    ++calls->of_item[i];
    if (std::this_thread::get_id() == caller) ++calls->on_caller;
    ++calls->total;
  });
  ASSERT_TRUE(eventually([&] { return calls->total == 100; }));
  for (const auto& n : calls->of_item) EXPECT_EQ(n, 1);
  EXPECT_EQ(calls->on_caller, 0);
}

TEST(RunInBackground, ReturnsWhileItemsStillRun) {
  const auto mutex = std::make_shared<std::mutex>();
  const auto ended = std::make_shared<std::atomic<bool>>(false);
  {
    const std::lock_guard lock(*mutex);
    run_in_background(1, 1, [mutex, ended](std::size_t) {
      const std::lock_guard wait(*mutex);
      *ended = true;
    });
    EXPECT_FALSE(*ended);
  }
  EXPECT_TRUE(eventually([&] { return ended->load(); }));
}

TEST(RunInBackground, EndsTheJobAtTheFirstItemThatThrows) {
  const auto calls = std::make_shared<std::atomic<int>>(0);
  const auto alive = std::make_shared<int>(0);
  run_in_background(1000, 1, [calls, alive](std::size_t i) {
    ++*calls;
    if (i == 2) throw std::runtime_error("no more");
  });
  ASSERT_TRUE(eventually([&] { return alive.use_count() == 1; }));
  EXPECT_EQ(*calls, 3);
}

TEST(RunInBackground, ReleasesTheWorkWhenItIsDone) {
  const auto alive = std::make_shared<int>(0);
  run_in_background(5, 2, [alive](std::size_t) {});
  EXPECT_TRUE(eventually([&] { return alive.use_count() == 1; }));
  run_in_background(0, 2, [alive](std::size_t) {});
  EXPECT_TRUE(eventually([&] { return alive.use_count() == 1; }));
}

TEST(RunInBackground, NeverForksWhileAnItemHoldsALock) {
  // If a thread of the parent held a lock during the fork, the child could never acquire it.
  const auto mutex = std::make_shared<std::mutex>();
  const auto stop = std::make_shared<std::atomic<bool>>(false);
  run_in_background(1'000'000'000, 2, [mutex, stop](std::size_t) {
    const std::lock_guard lock(*mutex);
    if (*stop) throw std::runtime_error("stop");
  });
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) _exit(mutex->try_lock() ? 0 : 1);
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  *stop = true;
}

TEST(RunInBackground, WorksInTheChildOfAFork) {
#if TENFOLD_TSAN
  GTEST_SKIP() << "TSan starts no threads in the child of a fork";
#endif
  run_in_background(1, 1, [](std::size_t) {});
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto called = std::make_shared<std::atomic<bool>>(false);
    run_in_background(1, 1, [called](std::size_t) { *called = true; });
    _exit(eventually([&] { return called->load(); }) ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(RunInBackground, AForkDuringTheFirstUseDoesNotBlockTheChild) {
#if TENFOLD_TSAN
  GTEST_SKIP() << "TSan starts no threads in the child of a fork";
#endif
  constexpr unsigned kSeconds = 20;
  for (int i = 0; i < 100; ++i) {
    const pid_t fresh = fork();  // a process in which background work was never used
    ASSERT_GE(fresh, 0);
    if (fresh == 0) {
      std::atomic<bool> go{false};
      std::thread user([&] {
        while (!go) continue;
        run_in_background(1, 1, [](std::size_t) {});
      });
      go = true;
      const pid_t child = fork();
      if (child == 0) {
        ::alarm(kSeconds);  // a child that hangs is killed
        await_background_closes();
        _exit(0);
      }
      int status = -1;
      waitpid(child, &status, 0);
      user.join();
      _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(fresh, &status, 0), fresh);
    ASSERT_TRUE(WIFEXITED(status));
    ASSERT_EQ(WEXITSTATUS(status), 0);
  }
}

TEST(CloseInBackground, ClosesARemovedFileBeforeTheWaitEnds) {
  const test::TemporaryFolder folder;
  Directory directory = Directory::open(folder.path());
  for (int i = 0; i < 50; ++i) {
    File file = File::create_at(directory, "x");
    const int descriptor = file.fd();
    directory.remove_file("x");
    close_in_background(std::move(file));
    await_background_closes();
    EXPECT_EQ(::fcntl(descriptor, F_GETFD), -1);
  }
}

TEST(CloseInBackground, AWaitInTheChildOfAForkDoesNotHang) {
  const test::TemporaryFolder folder;
  const Directory directory = Directory::open(folder.path());
  for (int i = 0; i < 20; ++i) {
    close_in_background(File::create_at(directory, "x" + std::to_string(i)));
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      ::alarm(20);  // a child that hangs is killed
      await_background_closes();
      _exit(0);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
}

TEST(RunInBackgroundDeathTest, TheProcessMayExitWithItemsLeft) {
  EXPECT_EXIT(
      {
        run_in_background(1'000'000'000, 2, [](std::size_t) { std::this_thread::sleep_for(1ms); });
        std::this_thread::sleep_for(5ms);
        std::exit(0);
      },
      testing::ExitedWithCode(0), "");
}

/// True in the process that is about to exit.
bool forks_at_end = false;

void fork_and_wait() {
  if (!forks_at_end) return;
  const pid_t child = fork();
  if (child == 0) _exit(0);
  int status = -1;
  waitpid(child, &status, 0);
  await_background_closes();
}

/// Registers fork_and_wait() early, so that it runs after the handler that stops background work.
__attribute__((constructor(101))) void register_first() { std::atexit(fork_and_wait); }

TEST(RunInBackgroundDeathTest, AnExitHandlerMayForkAndWait) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        forks_at_end = true;
        run_in_background(1'000'000'000, 2, [](std::size_t) { std::this_thread::sleep_for(1ms); });
        std::exit(0);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace tenfold::os

#include "os/thread/no_fork.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <thread>

namespace tenfold::os {
namespace {

/// The exit code of a child that runs `code`, or -1 if a signal ended it.
template <class Code>
int in_a_child(const Code& code) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(code());
  int status = -1;
  if (::waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

TEST(NoFork, NoChildInheritsALockThatIsHeldDuringIt) {
  std::mutex mutex;
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop) {
      const NoFork no_fork;
      const std::lock_guard lock(mutex);
    }
  });
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(in_a_child([&] { return mutex.try_lock() ? 0 : 1; }), 0);
  }
  stop = true;
  busy.join();
}

TEST(NoFork, DelaysAForkUntilItEnds) {
  std::optional<NoFork> no_fork(std::in_place);
  std::atomic<bool> forked{false};
  std::thread forking([&] {
    EXPECT_EQ(in_a_child([] { return 0; }), 0);
    forked = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(forked);
  no_fork.reset();
  forking.join();
  EXPECT_TRUE(forked);
}

TEST(NoFork, WorksInAChildAndItsChild) {
  {
    const NoFork first;
  }
  const auto guarded = [] {
    const NoFork no_fork;
    return 0;
  };
  EXPECT_EQ(in_a_child([&] { return guarded() + in_a_child(guarded); }), 0);
}

}  // namespace
}  // namespace tenfold::os

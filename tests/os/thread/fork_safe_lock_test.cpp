#include "os/thread/fork_safe_lock.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

namespace tenfold::os {
namespace {

/// A thread that holds the lock of `mutex` while this object exists.
template <class Mutex>
class Holder {
 public:
  explicit Holder(Mutex& mutex)
      : thread_([this, &mutex] {
          mutex.lock();
          is_locked_ = true;
          is_locked_.notify_one();
          is_done_.wait(false);
          mutex.unlock();
        }) {
    is_locked_.wait(false);
  }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;
  ~Holder() {
    is_done_ = true;
    is_done_.notify_one();
    thread_.join();
  }

 private:
  std::atomic<bool> is_locked_{false};
  std::atomic<bool> is_done_{false};
  std::thread thread_;
};

/// Returns the exit code of a child that runs `code`, or -1 if a signal ended the child. SIGALRM
/// ends it after 60 seconds.
template <class Code>
int in_a_child(const Code& code) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    ::_exit(code());
  }
  int status = -1;
  if (::waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

TEST(ForkSafeLock, IsNotLockedInAChildWhoseParentHeldIt) {
  struct Lock : ForkSafeLock {
    void lock() { EXPECT_TRUE(ForkSafeLock::lock()); }
  } lock;
  {
    const Holder holder(lock);
    EXPECT_EQ(in_a_child([&] { return lock.ForkSafeLock::lock() ? 1 : 0; }), 0);
    EXPECT_EQ(in_a_child([&] {
                if (lock.seize()) return 1;
                lock.give_up();
                if (lock.ForkSafeLock::lock() || lock.seize()) return 2;
                lock.unlock();
                if (!lock.seize()) return 3;
                // The child of this child is a third process.
                return in_a_child([&] { return lock.ForkSafeLock::lock() ? 1 : 0; });
              }),
              0);
  }
  EXPECT_TRUE(lock.seize());
  lock.unlock();
}

TEST(RenewingMutex, RenewsTheDataOnceInAChildWhoseParentHeldIt) {
  int renewed = 0;
  RenewingMutex mutex([&] { ++renewed; });
  const auto renewed_in_a_child = [&] {
    return in_a_child([&] {
      for (int i = 0; i < 2; ++i) const std::lock_guard lock(mutex);
      return renewed;
    });
  };
  EXPECT_EQ(renewed_in_a_child(), 0);
  {
    const Holder holder(mutex);
    EXPECT_EQ(renewed_in_a_child(), 1);
  }
  EXPECT_EQ(renewed_in_a_child(), 0);
  EXPECT_EQ(renewed, 0);
}

TEST(RenewingMutex, RenewsTheDataAgainAfterAnError) {
  int tries = 0;
  RenewingMutex mutex([&] {
    if (++tries < 3) throw std::runtime_error("no data");
  });
  const Holder holder(mutex);
  EXPECT_EQ(in_a_child([&] {
              int errors = 0;
              for (int i = 0; i < 4; ++i) {
                try {
                  const std::lock_guard lock(mutex);
                } catch (const std::runtime_error&) {
                  ++errors;
                }
              }
              return 10 * tries + errors;
            }),
            32);
}

TEST(RenewingMutex, ExcludesTheThreadsOfOneProcess) {
  RenewingMutex mutex([] {});
  int count = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10'000; ++i) {
        const std::lock_guard lock(mutex);
        ++count;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, 40'000);
}

}  // namespace
}  // namespace tenfold::os

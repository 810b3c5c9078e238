#pragma once

#include <sys/types.h>

#include <atomic>

namespace tenfold::os {

/// A mutex on which a forked child never hangs, even if a thread that exists only in the parent
/// held it at the fork. Takes one compare-and-swap if uncontended; not recursive.
class ForkSafeLock {
 public:
  ForkSafeLock() = default;
  ForkSafeLock(const ForkSafeLock&) = delete;
  ForkSafeLock& operator=(const ForkSafeLock&) = delete;

  /// Waits for other threads of this process and locks. Returns false without locking if a thread
  /// of the parent held the lock at the fork, because the guarded data may be inconsistent.
  [[nodiscard]] bool lock() noexcept;
  void unlock() noexcept;

 private:
  std::atomic<pid_t> holder_{0};  ///< PID of the process whose thread holds the lock; 0: unlocked
};

}  // namespace tenfold::os

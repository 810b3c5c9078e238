#pragma once

#include <sys/types.h>

#include <atomic>

namespace tenfold::os {

/// A mutex on which a forked child never hangs, although a thread that exists only in the parent
/// may have held it at the fork. One CAS if uncontended; not recursive.
class ForkSafeLock {
 public:
  ForkSafeLock() = default;
  ForkSafeLock(const ForkSafeLock&) = delete;
  ForkSafeLock& operator=(const ForkSafeLock&) = delete;

  /// Waits for other threads of this process and locks. Returns false without locking if a thread
  /// of the parent held it at the fork: the guarded data may be inconsistent.
  [[nodiscard]] bool lock() noexcept;
  void unlock() noexcept;

 private:
  std::atomic<pid_t> holder_{0};  ///< PID of the process whose thread holds it; 0: unlocked
};

}  // namespace tenfold::os

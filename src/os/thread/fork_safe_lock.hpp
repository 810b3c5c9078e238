#pragma once

#include <sys/types.h>

#include <atomic>

namespace tenfold::os {

/// A mutex that the child of a fork never hangs at, although a thread that stayed in the parent may
/// have held it. One CAS if nobody holds it; not recursive.
class ForkSafeLock {
 public:
  ForkSafeLock() = default;
  ForkSafeLock(const ForkSafeLock&) = delete;
  ForkSafeLock& operator=(const ForkSafeLock&) = delete;

  /// Waits for the other threads of this process, and takes it. False, and not taken, if a thread
  /// of the parent held it at the fork: what it guards may be half changed.
  [[nodiscard]] bool lock() noexcept;
  void unlock() noexcept;

 private:
  std::atomic<pid_t> holder_{0};  ///< the process whose thread holds it; 0: nobody
};

}  // namespace tenfold::os

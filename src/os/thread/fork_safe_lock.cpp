#include "os/thread/fork_safe_lock.hpp"

#include <unistd.h>

namespace tenfold::os {

bool ForkSafeLock::lock() noexcept {
  const pid_t process = ::getpid();
  for (;;) {
    pid_t holder = 0;
    if (holder_.compare_exchange_strong(holder, process, std::memory_order_acquire)) return true;
    if (holder != process) return false;
    holder_.wait(holder, std::memory_order_relaxed);
  }
}

void ForkSafeLock::unlock() noexcept {
  holder_.store(0, std::memory_order_release);
  holder_.notify_one();
}

}  // namespace tenfold::os

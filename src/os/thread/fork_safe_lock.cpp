#include "os/thread/fork_safe_lock.hpp"

#include <pthread.h>

#include <limits>

namespace tenfold::os {
namespace {

/// Number of forks from the process that loaded the library to this process, plus 1. Unlike the
/// process ID, the number is read without a system call, and no ancestor has the same number.
std::atomic<std::uint32_t> own_number{1};
[[maybe_unused]] const int number_handler =
    pthread_atfork(nullptr, nullptr, [] { own_number.fetch_add(1); });

/// Value of ForkSafeLock::holder_ after give_up().
constexpr std::uint32_t kNoProcess = std::numeric_limits<std::uint32_t>::max();

}  // namespace

bool ForkSafeLock::lock() noexcept {
  const std::uint32_t process = own_number.load(std::memory_order_relaxed);
  for (;;) {
    std::uint32_t holder = 0;
    if (holder_.compare_exchange_strong(holder, process, std::memory_order_acquire)) return true;
    if (holder != process) return false;
    holder_.wait(holder, std::memory_order_relaxed);
  }
}

void ForkSafeLock::unlock() noexcept {
  holder_.store(0, std::memory_order_release);
  holder_.notify_one();
}

bool ForkSafeLock::seize() noexcept {
  const std::uint32_t process = own_number.load(std::memory_order_relaxed);
  for (;;) {
    if (lock()) return true;
    std::uint32_t holder = holder_.load(std::memory_order_relaxed);
    if (holder == 0 || holder == process) continue;  // another thread was faster
    if (holder_.compare_exchange_strong(holder, process, std::memory_order_acquire)) return false;
  }
}

void ForkSafeLock::give_up() noexcept {
  holder_.store(kNoProcess, std::memory_order_release);
  holder_.notify_one();
}

void RenewingMutex::lock() {
  if (lock_.seize()) return;
  try {
    renew_();
  } catch (...) {
    lock_.give_up();
    throw;
  }
}

}  // namespace tenfold::os

#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>

namespace tenfold::os {

/// A mutex on which a forked child never hangs, even if a thread that exists only in the parent
/// held it at the fork. Takes one compare-and-swap if uncontended; not recursive.
class ForkSafeLock {
 public:
  ForkSafeLock() = default;
  ForkSafeLock(const ForkSafeLock&) = delete;
  ForkSafeLock& operator=(const ForkSafeLock&) = delete;

  /// Locks, after waiting until no other thread of this process holds the lock. Returns false
  /// without locking if a thread of the parent held the lock at the fork, or after give_up(),
  /// because the guarded data may be inconsistent.
  [[nodiscard]] bool lock() noexcept;
  void unlock() noexcept;
  /// Like lock(), but also locks when it returns false. Then the caller must replace the guarded
  /// data before unlock(), or call give_up().
  [[nodiscard]] bool seize() noexcept;
  /// Unlocks so that the next lock() or seize() returns false again.
  void give_up() noexcept;

 private:
  /// 0: unlocked; the fork count of this process (own_number): locked by one of its threads;
  /// another number: locked by a thread of the parent at the fork, or given up
  std::atomic<std::uint32_t> holder_{0};
};

/// A ForkSafeLock for std::lock_guard. If a thread of the parent held it at the fork, the first
/// lock() of the child calls `renew`, which replaces the guarded data. `renew` must not destroy the
/// old data, because that thread may have been changing them: use std::construct_at(), which runs
/// no destructor. If `renew` throws, lock() throws the same exception, and the next lock() calls
/// `renew` again.
class RenewingMutex {
 public:
  explicit RenewingMutex(std::function<void()> renew) : renew_(std::move(renew)) {}

  void lock();
  void unlock() noexcept { lock_.unlock(); }

 private:
  ForkSafeLock lock_;
  std::function<void()> renew_;
};

}  // namespace tenfold::os

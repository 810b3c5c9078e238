#pragma once

#include <pthread.h>

#include <atomic>
#include <memory>

namespace tenfold::os {

/// A process-wide singleton of T, created at first use. It is never destroyed, because threads may
/// still use it when the process exits. A forked child creates a new one, because the parent's
/// threads do not exist there, and locks that they held would never be released.
template <class T>
class ProcessWide {
 public:
  /// Returns the singleton. Uses no lock, because a fork could leave the lock locked in the child.
  static T& get() {
    // This reference makes the fork handler register at load time: a static member of a template
    // is initialised only if code refers to it.
    static_cast<void>(&fork_handler_);
    T* current = instance_.load(std::memory_order_acquire);
    if (current != nullptr) return *current;
    auto made = std::make_unique<T>();
    if (instance_.compare_exchange_strong(current, made.get())) return *made.release();
    return *current;
  }

 private:
  static void forget() { instance_.store(nullptr); }

  inline static std::atomic<T*> instance_{nullptr};
  inline static const int fork_handler_ = pthread_atfork(nullptr, nullptr, forget);
};

}  // namespace tenfold::os

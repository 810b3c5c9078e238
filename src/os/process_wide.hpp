#pragma once

#include <pthread.h>

#include <atomic>
#include <memory>

namespace tenfold::os {

/// The one T of the process, made at first use and never destroyed, as its threads may be at it
/// when the process ends. In the child of a fork, where those threads do not exist and what they
/// held stays locked, there is a new one.
template <class T>
class ProcessWide {
 public:
  /// Without a lock, which a fork could leave held.
  static T& get() {
    static_cast<void>(&fork_handler_);  // made when the program is loaded, as it is named here
    T* current = the_one_.load(std::memory_order_acquire);
    if (current != nullptr) return *current;
    auto made = std::make_unique<T>();
    if (the_one_.compare_exchange_strong(current, made.get())) return *made.release();
    return *current;
  }

 private:
  static void forget() { the_one_.store(nullptr); }

  inline static std::atomic<T*> the_one_{nullptr};
  inline static const int fork_handler_ = pthread_atfork(nullptr, nullptr, forget);
};

}  // namespace tenfold::os

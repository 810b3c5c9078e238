#include "os/thread/no_fork.hpp"

#include <pthread.h>

#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <new>

namespace tenfold::os {
namespace {

class Gate {
 public:
  void enter() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !closed_; });
    ++num_inside_;
  }
  void leave() {
    const std::lock_guard lock(mutex_);
    if (--num_inside_ == 0) changed_.notify_all();
  }
  /// Returns, with the mutex held, when no NoFork is alive.
  void close() {
    std::unique_lock lock(mutex_);
    closed_ = true;
    changed_.wait(lock, [this] { return num_inside_ == 0; });
    lock.release();
  }
  void open() {
    closed_ = false;
    mutex_.unlock();
    changed_.notify_all();
  }
  /// Resets the gate in a child, where none of the waiting threads exist.
  void begin_again() {
    mutex_.unlock();
    new (this) Gate;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t num_inside_ = 0;
  bool closed_ = false;
};

/// Never destroyed, because a thread may wait on it when the process exits. Created at load time,
/// before the library starts any thread, because a fork during its construction would leave the
/// child with a gate that is never constructed.
Gate* const gate = [] {
  auto made = std::make_unique<Gate>();
  pthread_atfork([] { gate->close(); }, [] { gate->open(); }, [] { gate->begin_again(); });
  return made.release();
}();

}  // namespace

NoFork::NoFork() { gate->enter(); }
NoFork::~NoFork() { gate->leave(); }

}  // namespace tenfold::os

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace tenfold::base {

/// A once-per-item latch: several threads may try to execute an item, and the first one does. A
/// thread that needs the result of an item that another thread has started waits for that thread.
class OnceFlags {
 public:
  explicit OnceFlags(std::size_t count) : states_(std::make_unique<std::atomic<State>[]>(count)) {}

  /// Runs `work`, which must not throw, unless a thread has already started the item.
  template <class Work>
  void do_once(std::size_t item, const Work& work) {
    State expected = State::open;
    if (!states_[item].compare_exchange_strong(expected, State::begun)) return;
    work();
    states_[item].store(State::done);
    states_[item].notify_all();
  }

  /// Like do_once(), but also waits until the item is finished.
  template <class Work>
  void ensure(std::size_t item, const Work& work) {
    do_once(item, work);
    states_[item].wait(State::begun);
  }

 private:
  enum class State : std::uint8_t { open, begun, done };
  std::unique_ptr<std::atomic<State>[]> states_;
};

}  // namespace tenfold::base

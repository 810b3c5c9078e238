#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace tenfold::base {

/// Items of work that several threads come by, and that are each done once: by the thread that
/// comes first. Who needs the result of an item that another thread has begun waits for it.
class Claims {
 public:
  explicit Claims(std::size_t count) : states_(std::make_unique<std::atomic<State>[]>(count)) {}

  /// Does `work`, which must not throw, unless another thread has begun the item.
  template <class Work>
  void do_once(std::size_t item, const Work& work) {
    State expected = State::open;
    if (!states_[item].compare_exchange_strong(expected, State::begun)) return;
    work();
    states_[item].store(State::done);
    states_[item].notify_all();
  }

  /// As do_once, and returns when the item is done.
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

#include "os/thread/helper_thread.hpp"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>

#include "os/process_wide.hpp"
#include "os/thread/no_signals.hpp"
#include "os/thread/thread_pool.hpp"

namespace tenfold::os {
namespace {

using HelperWork = std::function<void(std::size_t, std::size_t)>;
using Clock = std::chrono::steady_clock;

/// Time that the helper thread spins after a job or a wake-up, and the longest time after a job in
/// which start_helper() wakes the thread. Waking a thread takes some tens of microseconds, so
/// spinning for much longer would gain little and occupy a core.
constexpr Clock::duration kAwake = std::chrono::microseconds(100);

/// Spin-wait hint: yields execution resources to the core's other hardware thread, or lets a
/// hypervisor run another virtual CPU. Does nothing on architectures other than x86-64 and AArch64.
void pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// One call of run_with_helper().
class ShortJob {
 public:
  ShortJob(std::size_t count, std::size_t step, const HelperWork& work)
      : count_(count), step_(step), work_(work) {}

  /// Runs ranges until none are left.
  void run(std::exception_ptr& error) noexcept {
    try {
      for (;;) {
        const std::size_t begin = next_.fetch_add(step_, std::memory_order_relaxed);
        if (begin >= count_) return;
        work_(begin, std::min(begin + step_, count_));
      }
    } catch (...) {
      error = std::current_exception();
      next_.store(count_, std::memory_order_relaxed);
    }
  }

  std::exception_ptr helper_error;

 private:
  const std::size_t count_;
  const std::size_t step_;
  const HelperWork& work_;
  std::atomic<std::size_t> next_{0};
};

enum class State : int { parked, awake, offered, taken };

class HelperThread {
 public:
  void expect() noexcept {
    if (state_.load(std::memory_order_relaxed) != State::parked) return;
    if (Clock::now().time_since_epoch().count() - last_work_.load(std::memory_order_relaxed) >
        kAwake.count()) {
      return;
    }
    if (num_threads_for(0) < 2 || !has_thread()) return;
    State expected = State::parked;
    if (state_.compare_exchange_strong(expected, State::awake)) state_.notify_one();
  }

  void share(std::size_t count, std::size_t step, const HelperWork& work) {
    ShortJob job(count, step, work);
    const std::unique_lock<std::mutex> lock(callers_, std::try_to_lock);
    if (!lock.owns_lock() || !offer(job)) {
      work(0, count);
      return note_work();
    }
    std::exception_ptr error;
    job.run(error);
    State expected = State::offered;
    if (!state_.compare_exchange_strong(expected, State::awake)) await_helper();
    note_work();
    if (!error) error = job.helper_error;
    if (error) std::rethrow_exception(error);
  }

 private:
  bool has_thread() noexcept {
    const std::unique_lock<std::mutex> lock(callers_, std::try_to_lock);
    if (!lock.owns_lock()) return false;
    if (has_thread_) return true;
    const NoSignals no_signals;
    try {
      std::thread([this] {
        pthread_setname_np(pthread_self(), "tenfold-short");
        serve();
      }).detach();
      has_thread_ = true;
    } catch (const std::exception&) {
      // The thread could not be started (no thread or memory available), so callers work alone.
    }
    return has_thread_;
  }

  void serve() {
    for (;;) {
      state_.wait(State::parked);
      while (const auto job = await_job()) {
        job->run(job->helper_error);
        state_.store(State::awake, std::memory_order_release);  // after this, the job is owned by
                                                                // its caller again
      }
    }
  }

  /// Returns false if the helper thread is parked.
  bool offer(ShortJob& job) noexcept {
    if (state_.load(std::memory_order_relaxed) != State::awake) return false;
    job_ = &job;
    State expected = State::awake;
    return state_.compare_exchange_strong(expected, State::offered);
  }

  /// Spins until a job arrives. Returns null, and the helper thread parks, if none has arrived in
  /// time.
  ShortJob* await_job() {
    constexpr int kPolls = 64;
    const auto end = Clock::now() + kAwake;
    for (;;) {
      for (int i = 0; i < kPolls; ++i) {
        State expected = State::offered;
        if (state_.load(std::memory_order_relaxed) == expected &&
            state_.compare_exchange_strong(expected, State::taken)) {
          return job_;
        }
        pause();
      }
      State expected = State::awake;
      if (Clock::now() > end && state_.compare_exchange_strong(expected, State::parked)) {
        return nullptr;
      }
    }
  }

  /// Waits until the helper thread has finished its ranges. The helper thread is awake, but the
  /// kernel may have descheduled it.
  void await_helper() noexcept {
    constexpr int kPolls = 4096;
    for (int i = 0; state_.load(std::memory_order_acquire) == State::taken; ++i) {
      if (i < kPolls) {
        pause();
      } else {
        std::this_thread::yield();
      }
    }
  }

  void note_work() noexcept {
    last_work_.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
  }

  std::atomic<State> state_{State::parked};
  std::mutex callers_;  ///< held by the caller that uses the helper thread
  ShortJob* job_ = nullptr;
  std::atomic<Clock::rep> last_work_{0};
  bool has_thread_ = false;
};

}  // namespace

void start_helper() noexcept { ProcessWide<HelperThread>::get().expect(); }

void run_with_helper(std::size_t count, std::size_t step, const HelperWork& work) {
  if (count <= step) return work(0, count);
  ProcessWide<HelperThread>::get().share(count, step, work);
}

}  // namespace tenfold::os

#include "os/thread/thread_pool.hpp"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <exception>
#include <mutex>
#include <string>
#include <thread>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "os/process_wide.hpp"
#include "os/thread/no_signals.hpp"

namespace tenfold::os {
namespace {

constexpr std::size_t kMaxThreads = 256;
constexpr auto kPollInterval = std::chrono::milliseconds(50);

/// True on a thread that runs items of a call with several threads: nested calls run serially.
thread_local bool inside_parallel_for = false;

class InsideParallelFor {
 public:
  InsideParallelFor() : before_(inside_parallel_for) { inside_parallel_for = true; }
  ~InsideParallelFor() { inside_parallel_for = before_; }
  InsideParallelFor(const InsideParallelFor&) = delete;
  InsideParallelFor& operator=(const InsideParallelFor&) = delete;

 private:
  bool before_;
};

/// One call of parallel_for.
class Job {
 public:
  Job(std::size_t count, const std::function<void(std::size_t)>& work)
      : count_(count), work_(work) {}

  /// Runs items until none are left; `between` may be empty.
  void run_items(const std::function<void()>& between) noexcept {
    const InsideParallelFor inside;
    try {
      while (!stopped_.load(std::memory_order_relaxed)) {
        const std::size_t item = next_.fetch_add(1, std::memory_order_relaxed);
        if (item >= count_) return;
        work_(item);
        if (between) between();
      }
    } catch (...) {
      fail(std::current_exception());
    }
  }

  void fail(std::exception_ptr error) noexcept {
    stopped_.store(true, std::memory_order_relaxed);
    const std::lock_guard lock(error_mutex_);
    if (!error_) error_ = std::move(error);
  }

  /// True if no further item is started, because an item or `between` threw.
  bool has_failed() const noexcept { return stopped_.load(std::memory_order_relaxed); }

  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

  std::size_t num_running = 0;  // number of pool threads on this job; guarded by the pool's mutex
  std::condition_variable finished;

 private:
  const std::size_t count_;
  const std::function<void(std::size_t)>& work_;
  std::atomic<std::size_t> next_{0};
  std::atomic<bool> stopped_{false};
  std::mutex error_mutex_;
  std::exception_ptr error_;
};

class Pool {
 public:
  void run(Job& job, std::size_t num_helpers, const std::function<void()>& between) {
    {
      const std::lock_guard lock(mutex_);
      start_threads(num_helpers);
      waiting_.insert(waiting_.end(), num_helpers, &job);
    }
    for (std::size_t i = 0; i < num_helpers; ++i) wake_.notify_one();
    job.run_items(between);

    std::unique_lock lock(mutex_);
    std::erase(waiting_, &job);  // remove the entries that no thread has taken
    while (job.num_running > 0) {
      if (!between || job.has_failed()) {
        job.finished.wait(lock);
        continue;
      }
      if (job.finished.wait_for(lock, kPollInterval) == std::cv_status::timeout) {
        lock.unlock();
        call_between(job, between);
        lock.lock();
      }
    }
  }

 private:
  static void call_between(Job& job, const std::function<void()>& between) noexcept {
    try {
      between();
    } catch (...) {
      job.fail(std::current_exception());
    }
  }

  void start_threads(std::size_t wanted) {
    const NoSignals no_signals;
    try {
      for (; num_threads_ < std::min(wanted, kMaxThreads); ++num_threads_) {
        std::thread([this, name = "tenfold-" + std::to_string(num_threads_)] {
          pthread_setname_np(pthread_self(), name.c_str());
          serve();
        }).detach();
      }
    } catch (const std::exception&) {
      // No more threads or memory: the existing threads and the caller do the work.
    }
  }

  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [this] { return !waiting_.empty(); });
      Job& job = *waiting_.front();
      waiting_.pop_front();
      ++job.num_running;
      lock.unlock();
      job.run_items({});
      lock.lock();
      // Notify while the mutex is locked: the job is on the caller's stack, and the caller destroys
      // it as soon as the count is 0.
      if (--job.num_running == 0) job.finished.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Job*> waiting_;
  std::size_t num_threads_ = 0;
};

void run_serially(std::size_t count, const std::function<void(std::size_t)>& work,
                  const std::function<void()>& between) {
  for (std::size_t i = 0; i < count; ++i) {
    work(i);
    if (between) between();
  }
}

}  // namespace

int num_threads_for(int requested) {
  constexpr int kMost = static_cast<int>(kMaxThreads);
  if (requested < 0) {
    throw base::invalid_argument().part("num_threads").expected("0 or more").found(requested);
  }
  if (requested > 0) return std::min(requested, kMost);
  if (const char* text = std::getenv("TENFOLD_NUM_THREADS")) {
    const long value = std::strtol(text, nullptr, 10);
    if (value > 0) return static_cast<int>(std::min(value, static_cast<long>(kMost)));
  }
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  int cores = 0;
  if (sched_getaffinity(0, sizeof cpus, &cpus) == 0) cores = CPU_COUNT(&cpus);
  if (cores <= 0) cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::clamp(cores, 1, 8);
}

void parallel_for(std::size_t count, int num_threads, const std::function<void(std::size_t)>& work,
                  const std::function<void()>& between) {
  const std::size_t threads =
      std::min({count, static_cast<std::size_t>(std::max(num_threads, 1)), kMaxThreads});
  if (threads <= 1 || inside_parallel_for) return run_serially(count, work, between);
  Job job(count, work);
  ProcessWide<Pool>::get().run(job, threads - 1, between);
  job.rethrow();
}

}  // namespace tenfold::os

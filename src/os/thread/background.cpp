#include "os/thread/background.hpp"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "os/process_wide.hpp"
#include "os/thread/no_fork.hpp"
#include "os/thread/no_signals.hpp"

namespace tenfold::os {
namespace {

/// Delays the exit of the process until running items have finished, and counts unfinished closes.
class ExitGate {
 public:
  void add_close() {
    const std::lock_guard lock(mutex_);
    ++num_closes_;
  }
  void end_close() {
    const std::lock_guard lock(mutex_);
    --num_closes_;
    changed_.notify_all();
  }
  void await_closes() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return num_closes_ == 0 || ended_; });
  }

  void enter() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !ended_; });
    ++num_inside_;
  }
  void leave() {
    const std::lock_guard lock(mutex_);
    --num_inside_;
    changed_.notify_all();
  }
  /// Blocks threads that begin a new item, and returns when no item is running.
  void end() {
    std::unique_lock lock(mutex_);
    ended_ = true;
    changed_.wait(lock, [this] { return num_inside_ == 0; });
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t num_inside_ = 0;
  std::size_t num_closes_ = 0;
  bool ended_ = false;
};

/// Uses ProcessWide, because a fork could leave the guard of a local static variable locked in the
/// child.
ExitGate& exit_gate() { return ProcessWide<ExitGate>::get(); }

/// Registered at load time: a fork during a later atexit() could leave a lock of the C library
/// locked in the child.
[[maybe_unused]] const int kEndsAtExit = std::atexit([] { exit_gate().end(); });

struct BackgroundJob {
  std::size_t count;
  std::function<void(std::size_t)> work;
  std::atomic<std::size_t> next{0};
};

void run_items(BackgroundJob& job) noexcept {
  for (;;) {
    const std::size_t item = job.next.fetch_add(1, std::memory_order_relaxed);
    if (item >= job.count) return;
    exit_gate().enter();
    try {
      const NoFork no_fork;
      job.work(item);
    } catch (...) {
      job.next.store(job.count, std::memory_order_relaxed);
    }
    exit_gate().leave();
  }
}

/// Returns false if no thread could be started.
bool start_threads(const std::shared_ptr<BackgroundJob>& job, std::size_t num_threads) {
  const NoSignals no_signals;
  std::size_t num_started = 0;
  try {
    for (; num_started < std::min(job->count, num_threads); ++num_started) {
      std::thread([job] {
        pthread_setname_np(pthread_self(), "tenfold-behind");
        run_items(*job);
      }).detach();
    }
  } catch (const std::exception&) {
    // No thread or no memory: continue with the threads that were started.
  }
  return num_started > 0;
}

std::shared_ptr<BackgroundJob> make_job(std::size_t count, std::function<void(std::size_t)> work) {
  const auto job = std::make_shared<BackgroundJob>();
  job->count = count;
  job->work = std::move(work);
  return job;
}

}  // namespace

void run_in_background(std::size_t count, int num_threads, std::function<void(std::size_t)> work) {
  start_threads(make_job(count, std::move(work)),
                static_cast<std::size_t>(std::max(num_threads, 1)));
}

void close_in_background(File file) {
  const auto held = std::make_shared<File>(std::move(file));
  const auto job = make_job(1, [held](std::size_t) {
    held->close();
    exit_gate().end_close();
  });
  exit_gate().add_close();
  if (start_threads(job, 1)) return;
  held->close();
  exit_gate().end_close();
}

void await_background_closes() { exit_gate().await_closes(); }

}  // namespace tenfold::os

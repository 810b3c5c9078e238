#include "os/memory/page_reader.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>

#include <tenfold/error.hpp>

#include "os/thread/workers.hpp"

namespace tenfold::os {
namespace {

/// The number of threads, each with one request in flight. A file server processes about this many
/// requests concurrently. A waiting thread takes almost no resources.
constexpr int kThreads = 32;
constexpr std::size_t kMaxWaiting = std::size_t{1} << 16U;
constexpr std::size_t kScratchBytes = std::size_t{64} << 10U;

}  // namespace

struct PageReader::State {
  std::mutex mutex;
  std::condition_variable wanted;
  std::condition_variable idle;
  std::deque<Range> waiting;
  int num_reading = 0;
  std::atomic<bool> stop = false;
  std::optional<Workers> workers;

  void work() {
    std::vector<std::byte> scratch(kScratchBytes);
    std::unique_lock lock(mutex);
    for (;;) {
      wanted.wait(lock, [this] { return stop || !waiting.empty(); });
      if (stop) return;
      const Range range = std::move(waiting.front());
      waiting.pop_front();
      ++num_reading;
      lock.unlock();
      read(range, scratch);
      lock.lock();
      --num_reading;
      if (num_reading == 0 && waiting.empty()) idle.notify_all();
    }
  }

  void read(const Range& range, std::span<std::byte> scratch) const noexcept {
    std::uint64_t done = 0;
    try {
      while (done < range.size_bytes && !stop) {
        const auto size = static_cast<std::size_t>(
            std::min<std::uint64_t>(scratch.size(), range.size_bytes - done));
        const std::size_t got =
            range.file->read_some_at(range.offset_bytes + done, scratch.first(size));
        if (got == 0) return;
        done += got;
      }
    } catch (const Error&) {
      // The thread that accesses the page gets the error.
    }
  }
};

PageReader::PageReader() : state_(std::make_unique<State>()) {
  state_->workers.emplace(kThreads, [state = state_.get()] { state->work(); });
}

PageReader::~PageReader() {
  if (!state_->workers->is_here()) {
    // In a forked child, a thread that exists only in the parent may have locked the mutex.
    static_cast<void>(state_.release());
    return;
  }
  {
    const std::lock_guard lock(state_->mutex);
    state_->stop = true;
    state_->wanted.notify_all();
  }
  state_->workers.reset();
}

void PageReader::prefetch(std::span<const Range> ranges) {
  if (!state_->workers->is_here()) return;
  const std::lock_guard lock(state_->mutex);
  state_->waiting.insert(state_->waiting.end(), ranges.begin(), ranges.end());
  while (state_->waiting.size() > kMaxWaiting) state_->waiting.pop_front();
  state_->wanted.notify_all();
}

void PageReader::wait() {
  std::unique_lock lock(state_->mutex);
  state_->idle.wait(lock, [this] { return state_->waiting.empty() && state_->num_reading == 0; });
}

}  // namespace tenfold::os

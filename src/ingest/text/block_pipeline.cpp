#include "ingest/text/block_pipeline.hpp"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>

#include "os/thread/thread_pool.hpp"

namespace tenfold {

using namespace detail;
namespace {

/// Interval at which the calling thread polls the progress while it waits for its turn.
constexpr std::chrono::milliseconds kPollInterval{50};

class Pipeline {
 public:
  Pipeline(BlockReader& reader, formats::Progress& progress)
      : reader_(reader), progress_(progress), caller_(std::this_thread::get_id()) {}

  /// The loop of one thread: processes blocks until none are left or the pipeline has ended.
  void run(BlockWork& work) {
    Block block;
    while (read(block)) {
      const std::uint64_t number = block.number;
      try {
        work.begin(block);
        bool more = true;
        while (more && !is_stopped()) {
          more = work.work();
          if (!await_turn(number)) return;
          if (!work.deliver()) return end();
          poll();
        }
      } catch (...) {
        if (await_turn(number)) fail(std::current_exception());
        return;
      }
      pass_turn();
    }
  }

  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }
  /// Polls the progress if this is the thread that called run_pipeline(), otherwise does nothing.
  /// Called after each delivery and while waiting.
  void poll() {
    if (std::this_thread::get_id() != caller_) return;
    try {
      progress_.poll();
    } catch (...) {
      fail(std::current_exception());
    }
  }

 private:
  bool read(Block& block) {
    const std::lock_guard lock(reading_);
    if (is_stopped() || read_all_) return false;
    try {
      const std::uint64_t before = reader_.num_read();
      read_all_ = !reader_.next(block);
      progress_.add(reader_.num_read() - before);
      num_read_ = read_all_ ? num_read_ : num_read_ + 1;
    } catch (...) {
      // Report the error only when all earlier blocks are delivered, because their errors take
      // precedence.
      read_all_ = true;
      if (await_turn(num_read_)) fail(std::current_exception());
      return false;
    }
    return !read_all_;
  }

  /// Waits until block `number` is the next to deliver. Returns false if the pipeline has ended.
  bool await_turn(std::uint64_t number) {
    std::unique_lock lock(mutex_);
    while (!over_ && turn_ != number) {
      changed_.wait_for(lock, kPollInterval);
      if (std::this_thread::get_id() != caller_) continue;
      lock.unlock();
      poll();
      lock.lock();
    }
    return !over_;
  }
  void pass_turn() {
    const std::lock_guard lock(mutex_);
    ++turn_;
    changed_.notify_all();
  }
  void end() {
    const std::lock_guard lock(mutex_);
    over_ = true;
    changed_.notify_all();
  }
  void fail(std::exception_ptr failure) {
    const std::lock_guard lock(mutex_);
    if (!over_) failure_ = std::move(failure);
    over_ = true;
    changed_.notify_all();
  }
  bool is_stopped() {
    const std::lock_guard lock(mutex_);
    return over_;
  }

  BlockReader& reader_;
  formats::Progress& progress_;
  std::thread::id caller_;

  std::mutex reading_;
  bool read_all_ = false;
  std::uint64_t num_read_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t turn_ = 0;
  bool over_ = false;
  std::exception_ptr failure_;
};

}  // namespace

void run_pipeline(BlockReader& reader, int num_threads, formats::Progress& progress,
                  const std::function<std::unique_ptr<BlockWork>()>& make_work) {
  Pipeline pipeline(reader, progress);
  const int threads = os::num_threads_for(num_threads);
  os::parallel_for(
      static_cast<std::size_t>(threads), threads,
      [&](std::size_t) {
        const auto work = make_work();
        pipeline.run(*work);
      },
      [&] { pipeline.poll(); });
  pipeline.rethrow();
}

}  // namespace tenfold

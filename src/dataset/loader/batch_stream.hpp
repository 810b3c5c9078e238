#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include <tenfold/batch_loader.hpp>

#include "dataset/loader/epoch_order.hpp"
#include "dataset/loader/residency.hpp"
#include "os/thread/fork_safe_lock.hpp"
#include "os/thread/workers.hpp"

namespace tenfold {

/// One pass through an epoch. If the option `prefetch` is positive and `num_threads` allows more
/// than one thread, threads of the stream make some batches in advance. If no thread has begun the
/// next batch when the caller needs it, the caller makes the batch.
class BatchStream {
 public:
  BatchStream(Dataset dataset, const BatchLoaderOptions& options, EpochOrder order,
              std::int64_t position);
  BatchStream(const BatchStream&) = delete;
  BatchStream& operator=(const BatchStream&) = delete;
  ~BatchStream();

  /// A lock for threads that share the stream. A thread holds it while it takes a batch and records
  /// the position. The constructor throws Error(unsupported) in a forked child if the threads of
  /// the stream, or the thread that held the lock, exist only in the parent.
  class Turn {
   public:
    explicit Turn(BatchStream& stream);
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    ~Turn();

   private:
    BatchStream& stream_;
  };

  // Only the thread that holds a Turn may call the following public members.

  /// The next batch, or nullopt at the end. Rethrows the exception if making the batch failed; the
  /// next call then returns the batch after it.
  std::optional<Batch> next();
  bool is_at_end() const noexcept { return next_ == num_batches_; }
  /// The position of the next batch in the epoch, counted in rows of all ranks. Includes the rows
  /// before the start position, and the rows of batches for which next() threw an exception.
  std::int64_t position() const noexcept { return position_; }
  const LoaderStats& stats() const noexcept { return stats_; }

 private:
  struct Slot {
    bool ready = false;
    std::optional<Batch> batch;
    std::exception_ptr error;
  };
  using Lock = std::unique_lock<std::mutex>;

  std::int64_t end_of(std::int64_t batch) const;
  /// The rows of this rank in batch number `batch`, as row numbers over all parts.
  std::vector<std::int64_t> rows_of(std::int64_t batch) const;
  Batch make(std::int64_t batch);
  /// If pages are missing, prefetches the pages of `batch`, which this thread makes next, and of
  /// some batches after it. Otherwise may take more samples of the page cache.
  void prefetch_ahead(std::int64_t batch, Lock& lock);
  void work();
  Batch take(std::int64_t batch, Lock& lock);
  Slot& slot_of(std::int64_t batch) {
    return slots_[static_cast<std::size_t>(batch) % slots_.size()];
  }

  const Dataset dataset_;
  const BatchLoaderOptions options_;
  const EpochOrder order_;
  const std::int64_t start_;  ///< position of the first batch, in rows of all ranks
  std::int64_t num_batches_ = 0;
  std::int64_t position_;
  Residency residency_;
  LoaderStats stats_;
  std::optional<std::chrono::steady_clock::time_point> began_;
  int threads_a_batch_ = 1;

  /// Not destroyed in a forked child, because the destructor of a condition variable would wait
  /// for threads that exist only in the parent.
  struct Signals {
    std::condition_variable ready;
    std::condition_variable wanted;
  };
  std::unique_ptr<Signals> signals_ = std::make_unique<Signals>();

  os::ForkSafeLock turn_;

  std::mutex mutex_;  ///< guards the members below, except workers_
  std::vector<Slot> slots_;
  std::int64_t next_ = 0;     ///< next batch to return; changed by the consumer only
  std::int64_t claimed_ = 0;  ///< batches before this one are made or being made
  /// For each stage, the next batch to prefetch.
  std::array<std::int64_t, Residency::kMaxStages> prefetched_{};
  bool samples_more_ = true;  ///< more samples are possible, and no thread is sampling
  bool consumer_waits_ = false;
  int idle_workers_ = 0;
  bool stop_ = false;
  std::optional<os::Workers> workers_;
};

}  // namespace tenfold

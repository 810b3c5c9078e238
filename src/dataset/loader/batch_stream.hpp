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

/// One pass through an epoch. Some batches are made ahead by threads of its own; a caller that is
/// faster than they are makes its batch itself rather than wait.
class BatchStream {
 public:
  BatchStream(Dataset dataset, const BatchLoaderOptions& options, EpochOrder order,
              std::int64_t position);
  BatchStream(const BatchStream&) = delete;
  BatchStream& operator=(const BatchStream&) = delete;
  ~BatchStream();

  /// What threads that share the stream do one by one: they take a batch, and note what it was.
  /// Throws Error(unsupported) in the child of a fork whose threads, or one that had the turn,
  /// stayed in the parent.
  class Turn {
   public:
    explicit Turn(BatchStream& stream);
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    ~Turn();

   private:
    BatchStream& stream_;
  };

  // By the thread whose turn it is.

  /// The next batch, or nothing. Rethrows what went wrong in making it.
  std::optional<Batch> next();
  bool is_at_end() const noexcept { return next_ == num_batches_; }
  /// Rows of all ranks handed out, and skipped at the start.
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
  /// The rows of this rank in that batch, of all parts numbered through.
  std::vector<std::int64_t> rows_of(std::int64_t batch) const;
  Batch make(std::int64_t batch);
  /// Asks for the pages of the batches that come after the one about to be made.
  void look_ahead(std::int64_t batch, Lock& lock);
  void work();
  Batch take(std::int64_t batch, Lock& lock);
  Slot& slot_of(std::int64_t batch) {
    return slots_[static_cast<std::size_t>(batch) % slots_.size()];
  }

  const Dataset dataset_;
  const BatchLoaderOptions options_;
  const EpochOrder order_;
  const std::int64_t start_;  ///< position of the first batch
  std::int64_t num_batches_ = 0;
  std::int64_t position_;
  Residency residency_;
  LoaderStats stats_;
  std::optional<std::chrono::steady_clock::time_point> began_;
  int threads_a_batch_ = 1;

  /// In the child of a fork nobody waits at these any more, and to destroy them would wait for
  /// those who do in the parent: so they are not destroyed there.
  struct Signals {
    std::condition_variable ready;
    std::condition_variable wanted;
  };
  std::unique_ptr<Signals> signals_ = std::make_unique<Signals>();

  os::ForkSafeLock turn_;

  std::mutex mutex_;  ///< guards what follows
  std::vector<Slot> slots_;
  std::int64_t next_ = 0;     ///< to be handed out; changed by the consumer only
  std::int64_t claimed_ = 0;  ///< made, or being made, up to here
  /// Of the residency in each stage, up to here.
  std::array<std::int64_t, Residency::kMaxStages> asked_{};
  bool looks_closer_ = true;  ///< there is more to look at, and nobody is looking
  bool consumer_waits_ = false;
  int idle_workers_ = 0;
  bool stop_ = false;
  std::optional<os::Workers> workers_;
};

}  // namespace tenfold

#include "dataset/loader/batch_stream.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "os/memory/advice.hpp"
#include "os/thread/no_fork.hpp"
#include "os/thread/thread_pool.hpp"

namespace tenfold {
namespace {

using Clock = std::chrono::steady_clock;

/// The distance (in rows of all ranks together) by which a prefetch stage is ahead of the next
/// stage, and the last stage ahead of the batch that is being made. It is large enough for many
/// concurrent requests to the device. The distance is always at least two batches.
constexpr std::int64_t kPrefetchedRows = 1024;
/// While prefetching is off, every 16th batch is checked for major page faults.
constexpr std::int64_t kWatchedBatches = 16;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::uint64_t bytes_of(const Batch& batch) {
  std::uint64_t total = 0;
  for (const BatchColumn& column : batch.columns()) total += column.values.nbytes();
  return total;
}

}  // namespace

BatchStream::BatchStream(Dataset dataset, const BatchLoaderOptions& options, EpochOrder order,
                         std::int64_t position)
    : dataset_(std::move(dataset)),
      options_(options),
      order_(std::move(order)),
      start_(position),
      position_(position),
      residency_(*state_of(dataset_), options.shuffle && options.shuffle_block == 0) {
  const std::int64_t rows = order_.size() - position;
  const bool has_part = !options_.drop_last && rows % options_.batch_size != 0;
  num_batches_ = rows / options_.batch_size + (has_part ? 1 : 0);
  const int threads = os::num_threads_for(options_.num_threads);
  const std::int64_t ahead = threads == 1 ? 0 : std::min(options_.prefetch, num_batches_);
  slots_.resize(static_cast<std::size_t>(std::max<std::int64_t>(ahead, 1)) + 1);
  stats_.residency = residency_.strategy();
  stats_.shuffle_window_rows = order_.window_rows();
  const auto count = static_cast<int>(std::min<std::int64_t>(ahead, threads - 1));
  if (count > 0) {
    workers_.emplace(count, [this] { work(); });
  } else {
    threads_a_batch_ = threads;
  }
}

BatchStream::~BatchStream() {
  if (!workers_) return;
  if (!workers_->is_here()) {
    static_cast<void>(signals_.release());
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    signals_->wanted.notify_all();
  }
  workers_.reset();
}

std::int64_t BatchStream::end_of(std::int64_t batch) const {
  const std::int64_t begin = start_ + batch * options_.batch_size;
  return begin + std::min(options_.batch_size, order_.size() - begin);
}

std::vector<std::int64_t> BatchStream::rows_of(std::int64_t batch) const {
  const std::int64_t begin = start_ + batch * options_.batch_size;
  const std::int64_t size = end_of(batch) - begin;
  // Computes size * rank / world_size without overflow.
  const auto until = [&](std::int64_t rank) {
    const std::int64_t each = size / options_.world_size;
    return each * rank + size % options_.world_size * rank / options_.world_size;
  };
  const std::int64_t first = until(options_.rank);
  const std::int64_t last = until(options_.rank + 1);
  std::vector<std::int64_t> rows(static_cast<std::size_t>(last - first));
  order_.fill(begin + first, rows);
  state_of(dataset_)->order->map(rows);
  return rows;
}

Batch BatchStream::make(std::int64_t batch) {
  BatchOptions options = options_.batch;
  options.num_threads = threads_a_batch_;
  // Check for page faults even if all data was cached: it may be evicted in the middle of an epoch.
  const bool is_watched = batch % kWatchedBatches == 0 && !residency_.is_needed();
  const std::uint64_t before = is_watched ? os::num_pages_waited_for() : 0;
  Batch made = gather(*state_of(dataset_), rows_of(batch), options);
  if (is_watched) residency_.note_waits(os::num_pages_waited_for() - before, made.num_rows());
  return made;
}

void BatchStream::prefetch_ahead(std::int64_t batch, Lock& lock) {
  if (!residency_.is_needed()) {
    // Do not sample before the first batch: the constructor has already taken samples.
    if (batch == 0 || !samples_more_) return;
    samples_more_ = false;
    lock.unlock();
    const bool may_sample_again = residency_.sample_more();
    lock.lock();
    samples_more_ = may_sample_again;
    if (!residency_.is_needed()) return;
  }
  const std::int64_t ahead = std::max<std::int64_t>(kPrefetchedRows / options_.batch_size, 2);
  // Earlier stages prefetch further ahead, because later stages read end offsets that the earlier
  // stages prefetched.
  for (int stage = 0; stage < residency_.num_stages(); ++stage) {
    std::int64_t& prefetched_to = prefetched_[static_cast<std::size_t>(stage)];
    const std::int64_t end =
        std::min(batch + 1 + ahead * (residency_.num_stages() - stage), num_batches_);
    while (prefetched_to < end) {
      const std::int64_t asked = std::max(prefetched_to, batch);
      prefetched_to = asked + 1;
      lock.unlock();
      const std::vector<std::int64_t> rows = rows_of(asked);
      residency_.reconsider(rows, stage);
      residency_.prefetch(rows, stage);
      lock.lock();
    }
  }
}

void BatchStream::work() {
  Lock lock(mutex_);
  const auto ahead = static_cast<std::int64_t>(slots_.size()) - 1;
  for (;;) {
    ++idle_workers_;
    signals_->wanted.wait(
        lock, [&] { return stop_ || (claimed_ < num_batches_ && claimed_ < next_ + ahead); });
    --idle_workers_;
    if (stop_) return;
    const std::int64_t batch = claimed_++;
    lock.unlock();
    // A fork must not happen while this thread makes a batch and stores it in its slot.
    const os::NoFork no_fork;
    lock.lock();
    Slot made;
    try {
      prefetch_ahead(batch, lock);
      lock.unlock();
      made.batch = make(batch);
    } catch (...) {
      made.error = std::current_exception();
    }
    if (!lock.owns_lock()) lock.lock();
    made.ready = true;
    slot_of(batch) = std::move(made);
    if (consumer_waits_) signals_->ready.notify_one();
  }
}

Batch BatchStream::take(std::int64_t batch, Lock& lock) {
  if (claimed_ == batch) {
    ++claimed_;
    if (idle_workers_ > 0 && claimed_ < num_batches_) signals_->wanted.notify_one();
    prefetch_ahead(batch, lock);
    lock.unlock();
    Batch made = make(batch);
    lock.lock();
    return made;
  }
  consumer_waits_ = true;
  signals_->ready.wait(lock, [&] { return slot_of(batch).ready; });
  consumer_waits_ = false;
  Slot taken = std::exchange(slot_of(batch), {});
  if (taken.error) std::rethrow_exception(taken.error);
  return std::move(*taken.batch);
}

BatchStream::Turn::Turn(BatchStream& stream) : stream_(stream) {
  const bool is_here = !stream.workers_ || stream.workers_->is_here();
  if (is_here && stream.turn_.lock()) return;
  throw base::unsupported()
      .part("batch loader")
      .problem(
          "this iterator was started before the process forked, and its threads exist only in the "
          "parent")
      .expected("an iterator of this process")
      .found("one of the parent")
      .remedy("start a new iterator");
}

BatchStream::Turn::~Turn() { stream_.turn_.unlock(); }

std::optional<Batch> BatchStream::next() {
  if (next_ == num_batches_) return std::nullopt;
  const Clock::time_point asked = Clock::now();
  if (!began_) began_ = asked;
  Lock lock(mutex_);
  const std::int64_t batch = next_;
  std::optional<Batch> made;
  try {
    made = take(batch, lock);
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    ++next_;
    position_ = end_of(batch);
    throw;
  }
  ++next_;
  if (idle_workers_ > 0 && claimed_ < num_batches_) signals_->wanted.notify_one();
  lock.unlock();
  position_ = end_of(batch);
  ++stats_.batches;
  stats_.rows += made->num_rows();
  stats_.bytes += bytes_of(*made);
  stats_.wait_seconds += seconds_since(asked);
  stats_.elapsed_seconds = seconds_since(*began_);
  stats_.residency = residency_.strategy();
  return made;
}

}  // namespace tenfold

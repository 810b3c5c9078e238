#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/batch.hpp>
#include <tenfold/dataset.hpp>

namespace tenfold {

/// An epoch in progress: BatchLoader::start() begins it, BatchLoader::next() returns its batches.
class BatchStream;

/// Options of BatchLoader.
struct BatchLoaderOptions {
  std::int64_t batch_size = 1;  ///< rows of a batch on all ranks together
  bool shuffle = false;         ///< shuffle the rows, differently in each epoch
  std::uint64_t seed = 0;       ///< determines the shuffled order
  bool drop_last = false;       ///< omit the last batch of an epoch if it is not full
  /// Rank r gets rows [b * r / world_size, b * (r + 1) / world_size) of each batch of b rows.
  std::int64_t rank = 0;
  std::int64_t world_size = 1;         ///< the number of ranks
  std::vector<std::string> columns{};  ///< empty: all
  /// Number of batches that are made in advance, at most 1,024. No batch is made in advance if only
  /// one thread makes batches (`num_threads`).
  std::int64_t prefetch = 2;
  /// Number of threads that make batches, including the one that calls next(). 0:
  /// TENFOLD_NUM_THREADS, or min(8, cores).
  int num_threads = 0;
  /// With `shuffle`: shuffles blocks of this many rows, and then the rows within windows of 64
  /// blocks. For data sets that have small rows and do not fit in memory. 0: a full shuffle.
  std::int64_t shuffle_block = 0;
  BatchOptions batch{};  ///< how ragged columns are padded; its num_threads is not used
  /// Writes the tensors of each batch to blocks given to supply(), or to other memory if no such
  /// block is large enough.
  bool use_supplied_memory = false;
};

/// Counters and times of the stream that was started last. An epoch that was resumed counts from
/// the point of resumption.
struct LoaderStats {
  std::int64_t batches = 0;    ///< batches returned
  std::int64_t rows = 0;       ///< rows in these batches
  std::uint64_t bytes = 0;     ///< bytes of the values of these rows
  double elapsed_seconds = 0;  ///< from the request for the first batch to the return of the last
  double wait_seconds = 0;     ///< total time in next(), including the time to make batches there
  /// How pages are prefetched:
  ///
  ///     "resident"  not at all, because all sampled pages were in the page cache
  ///     "willneed"  by madvise for coming batches
  ///     "pread"     by threads that read the pages
  ///     "none"      not at all, because of TENFOLD_RESIDENCY=none, although pages were missing
  std::string residency;
  std::int64_t shuffle_window_rows = 0;  ///< rows per shuffle window; 0: not shuffled in windows
};

/// Batches of a data set, epoch after epoch. The order of the rows depends on the number of rows,
/// on `shuffle`, `shuffle_block`, seed and epoch, but not on threads, ranks or the point of
/// resumption.
///
///     tenfold::BatchLoader loader(ds, {.batch_size = 256, .shuffle = true, .seed = 7});
///     for (const tenfold::Batch& batch : loader) train(batch.at("x"));
///
/// Iterating to the end increments the epoch. The last epoch, 2^62, is followed by epoch 0.
///
/// A moved-from BatchLoader can only be assigned or destroyed.
///
/// Thread safety: threads may share the stream that one call of start() returned. next() then
/// returns each batch to one of the threads, and nullopt to each of them at the end. state_dict(),
/// epoch(), stats(), supply() and requested_sizes() may be called concurrently. Only one thread at
/// a time may call other members or use an Iterator. A Batch may be used from any thread.
class TENFOLD_API BatchLoader {
 public:
  /// Creates a loader of the rows that `dataset` has now; rows that are appended later are not
  /// included. Throws Error(invalid_argument) naming an invalid option, or a padded column "x" if
  /// there is also a column "x.length", which is the name of the row lengths of "x" in batches.
  /// Throws Error(key_not_found) for a column that the data set does not have, or if a column to
  /// pad is not a ragged column of numbers.
  BatchLoader(Dataset dataset, BatchLoaderOptions options);
  /// Releases the loader without waiting for threads. The destructor of a BatchStream waits for the
  /// threads that make its batches.
  ~BatchLoader();
  /// Moves the loader.
  BatchLoader(BatchLoader&&) noexcept;
  /// Moves the loader.
  BatchLoader& operator=(BatchLoader&&) noexcept;

  /// The options given to the constructor, except that load_state_dict() replaces the seed.
  const BatchLoaderOptions& options() const noexcept TENFOLD_LIFETIMEBOUND;
  /// The number of batches in a whole epoch.
  std::int64_t size() const noexcept;
  /// The epoch in progress; if there is none, the epoch that the next start() begins.
  std::int64_t epoch() const noexcept;
  /// Makes the next start() begin that epoch, at its first row. Throws Error(invalid_argument)
  /// unless 0 <= epoch <= 2^62.
  void set_epoch(std::int64_t epoch);

  /// Returns the state for a later resumption: {"seed":7,"epoch":2,"position":51200}. `position`
  /// counts the rows returned on all ranks. After the last batch of an epoch, it is 0, and `epoch`
  /// is the next one.
  std::string state_dict() const;
  /// Makes the next start() resume at a state that state_dict() returned, with the seed of that
  /// state. The loader that returned the state may have had another batch_size or world_size.
  /// Throws Error(invalid_argument) for an invalid state, or a position beyond the rows.
  void load_state_dict(std::string_view json);
  /// Checks a state without loading it. Throws what load_state_dict() throws.
  void check_state_dict(std::string_view json) const;

  /// Returns counters and times of the stream that was started last; zeros before the first
  /// start().
  LoaderStats stats() const;

  /// Supplies a block of memory, such as pinned memory, for tensors of one batch. The loader writes
  /// to the block once; the block's owner is released with the last tensor over it. If more than 64
  /// blocks are unused, the oldest ones are released. May be called while batches are made.
  /// Without `use_supplied_memory`, no block is written.
  void supply(Buffer memory);
  /// Returns the sizes in bytes of the first 1,024 blocks requested since the last call. Supply
  /// blocks of these sizes. Empty without `use_supplied_memory`.
  std::vector<std::size_t> requested_sizes();

  /// Starts an epoch; the first call after load_state_dict() starts at the position of that state.
  /// Throws Error(invalid_argument) for an unknown value of TENFOLD_RESIDENCY.
  std::shared_ptr<BatchStream> start();
  /// Returns the next batch of `stream`, or nullopt at the end of its epoch. epoch(), state_dict()
  /// and stats() follow only the stream that was started last. Throws what Dataset::rows() throws;
  /// the next call then returns the batch after the failed one. In a forked child, throws
  /// Error(unsupported) if the threads of the stream exist only in the parent.
  std::optional<Batch> next(BatchStream& stream);

  /// An input iterator. The loader must outlive it.
  class Iterator {
   public:
    using value_type = Batch;                           ///< type of *iterator
    using difference_type = std::ptrdiff_t;             ///< required of iterators
    using iterator_category = std::input_iterator_tag;  ///< each batch is returned once
    /// The current batch.
    Batch& operator*() const { return *batch_; }
    /// The current batch.
    Batch* operator->() const { return &*batch_; }
    /// Moves to the next batch.
    Iterator& operator++() {
      batch_ = loader_->next(*stream_);
      return *this;
    }
    /// Moves to the next batch.
    void operator++(int) { ++*this; }
    /// True at the end of the epoch.
    bool operator==(std::default_sentinel_t) const noexcept { return !batch_.has_value(); }

   private:
    friend class BatchLoader;
    Iterator(BatchLoader& loader, std::shared_ptr<BatchStream> stream)
        : loader_(&loader), stream_(std::move(stream)), batch_(loader.next(*stream_)) {}
    BatchLoader* loader_;
    std::shared_ptr<BatchStream> stream_;
    mutable std::optional<Batch> batch_;  ///< callers may move it, as from any input iterator
  };
  /// Calls start() and takes the first batch.
  Iterator begin() { return {*this, start()}; }
  /// The end of the epoch.
  std::default_sentinel_t end() const noexcept { return {}; }

 private:
  struct TENFOLD_LOCAL State;
  class TENFOLD_LOCAL StateLock;
  std::unique_ptr<State> state_;
};

}  // namespace tenfold

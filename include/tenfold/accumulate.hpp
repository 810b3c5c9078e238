#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <tenfold/batch_loader.hpp>

namespace tenfold {

/// A batch, and the factor by which its loss is multiplied before gradients are summed.
struct WeightedBatch {
  Batch batch;        ///< the rows
  double weight = 0;  ///< the factor for the batch's loss
};

/// The batches of one optimizer step.
class Window {
 public:
  /// Creates a window of these batches, which have `rows` rows in total on this rank.
  Window(std::vector<WeightedBatch> batches, std::int64_t rows)
      : batches_(std::move(batches)), rows_(rows) {}

  /// The number of rows that this rank has in the window.
  std::int64_t rows() const noexcept { return rows_; }
  /// The number of batches.
  std::size_t size() const noexcept { return batches_.size(); }
  /// The batch at `index`, which must be less than size().
  WeightedBatch& operator[](std::size_t index) TENFOLD_LIFETIMEBOUND { return batches_[index]; }
  /// The batch at `index`, which must be less than size().
  const WeightedBatch& operator[](std::size_t index) const TENFOLD_LIFETIMEBOUND {
    return batches_[index];
  }

  /// An iterator at the first batch.
  auto begin() noexcept { return batches_.begin(); }
  /// The end of the batches.
  auto end() noexcept { return batches_.end(); }
  /// An iterator at the first batch.
  auto begin() const noexcept { return batches_.begin(); }
  /// The end of the batches.
  auto end() const noexcept { return batches_.end(); }

 private:
  std::vector<WeightedBatch> batches_;
  std::int64_t rows_;
};

/// The range of windows that accumulate() returns. begin() starts an epoch by BatchLoader::start().
class TENFOLD_API Windows {
 public:
  /// An input iterator. The Windows object must outlive it.
  class Iterator {
   public:
    using value_type = Window;                          ///< type of *iterator
    using difference_type = std::ptrdiff_t;             ///< required of iterators
    using iterator_category = std::input_iterator_tag;  ///< each window is returned once
    /// The current window.
    Window& operator*() const { return *window_; }
    /// The current window.
    Window* operator->() const { return &*window_; }
    /// Moves to the next window.
    Iterator& operator++() {
      window_ = windows_->next(*stream_);
      return *this;
    }
    /// Moves to the next window.
    void operator++(int) { ++*this; }
    /// True at the end of the epoch.
    bool operator==(std::default_sentinel_t) const noexcept { return !window_.has_value(); }

   private:
    friend class Windows;
    Iterator(Windows& windows, std::shared_ptr<BatchStream> stream)
        : windows_(&windows), stream_(std::move(stream)), window_(windows.next(*stream_)) {}
    Windows* windows_;
    std::shared_ptr<BatchStream> stream_;
    mutable std::optional<Window> window_;  ///< callers may move it, as from any input iterator
  };

  /// Calls BatchLoader::start() and makes the first window.
  Iterator begin() { return {*this, loader_->start()}; }
  /// The end of the epoch.
  std::default_sentinel_t end() const noexcept { return {}; }

 private:
  friend Windows accumulate(BatchLoader& loader, std::int64_t steps);
  friend Windows accumulate(BatchLoader&& loader, std::int64_t steps);
  Windows(std::shared_ptr<BatchLoader> loader, std::int64_t steps);
  std::optional<Window> next(BatchStream& stream);

  std::shared_ptr<BatchLoader> loader_;
  std::int64_t steps_;
};

/// Groups the batches of an epoch into windows of `steps` batches, one for each optimizer step.
/// The last window may have fewer batches.
///
///     for (auto& window : tenfold::accumulate(loader, 4)) {
///       for (auto& [batch, weight] : window) (loss_of(batch) * weight).backward();
///       optimizer.step();
///       optimizer.zero_grad();
///     }
///
/// The weight of a batch is its number of rows divided by the number of rows of its window. If each
/// loss is the mean over a batch, the summed gradients equal the gradient of the mean over all rows
/// of the window. With several ranks, gradients must be averaged over the ranks (as
/// DistributedDataParallel does). The weight is then the batch's rows on this rank times the world
/// size, divided by the window's rows on all ranks. For a batch in which this rank has no rows, use
/// 0 as the loss, because the mean over no rows is NaN.
///
/// All batches of a window are made before the window is returned. So while a window is processed,
/// loader.state_dict() is already the start of the next window: save it after optimizer.step().
///
/// Throws Error(invalid_argument) if `steps` is below 1.
TENFOLD_API Windows accumulate(BatchLoader& loader TENFOLD_LIFETIMEBOUND, std::int64_t steps);
/// Like accumulate(BatchLoader&, steps), but takes ownership of the loader.
TENFOLD_API Windows accumulate(BatchLoader&& loader, std::int64_t steps);

}  // namespace tenfold

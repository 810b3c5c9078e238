#pragma once

/// Data sets for torch::data. Included by <tenfold/torch.hpp>.
///
///     auto data = tenfold::torch_dataset(tenfold::Dataset("flights"));
///     auto loader = torch::data::make_data_loader(std::move(data), /*batch_size=*/256);
///     for (tenfold::TorchBatch& batch : *loader) train(batch["price"]);
///
/// Or with the order and resumption of BatchLoader:
///
///     auto data = tenfold::torch_dataset(tenfold::BatchLoader(ds, {.batch_size = 256}));
///
/// TorchDataset and TorchBatches have the members that torch::data requires of a data set. They
/// derive from no class of torch::data, because its headers take ten seconds to compile.

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tenfold/batch_loader.hpp>
#include <tenfold/dataset.hpp>
#include <tenfold/error.hpp>
#include <tenfold/torch.hpp>

// Forward declarations, as in torch/data/datasets/base.h.
/// @cond
namespace torch::data::datasets {
template <typename S, typename T>
class MapDataset;
template <typename D, typename T>
MapDataset<D, T> map(D, T);
}  // namespace torch::data::datasets
/// @endcond

namespace tenfold {

/// The tensors of a batch by (dotted) name, in the order of the columns. They are the tensors of
/// BatchColumn:
///
///     "<column>"               values
///     "<column>.offsets"       offsets, of ragged rows and strings that are not padded
///     "<column>.item_offsets"  item_offsets, of lists of strings
///     "<column>.length"        lengths, of padded rows
///     "<column>.valid"         valid, if it is a bool tensor
///
/// If one of these names is also the name of a column, it names the values of that column, and the
/// batch lacks the other tensor.
class TorchBatch {
 public:
  /// A tensor and its name.
  struct Item {
    std::string name;   ///< the dotted name
    at::Tensor tensor;  ///< a tensor over the batch's memory
  };
  using value_type = Item;  ///< type of *iterator

  /// Adds a tensor.
  void add(std::string name, at::Tensor tensor) {
    items_.push_back({std::move(name), std::move(tensor)});
  }

  /// True if there is a tensor of that name.
  bool contains(std::string_view name) const noexcept { return find(name) != nullptr; }
  /// The tensor of that name. Throws Error(key_not_found).
  const at::Tensor& operator[](std::string_view name) const TENFOLD_LIFETIMEBOUND {
    if (const Item* item = find(name)) return item->tensor;
    throw Error(ErrorCode::key_not_found).part("batch").problem("no tensor \"", name, "\"");
  }

  /// The number of tensors.
  std::size_t size() const noexcept { return items_.size(); }
  /// An iterator at the first tensor.
  auto begin() const noexcept { return items_.begin(); }
  /// The end of the tensors.
  auto end() const noexcept { return items_.end(); }

 private:
  const Item* find(std::string_view name) const noexcept {
    for (const Item& item : items_) {
      if (item.name == name) return &item;
    }
    return nullptr;
  }

  std::vector<Item> items_;
};

/// Returns the tensors of a batch as torch tensors over the same memory.
inline TorchBatch to_torch(const Batch& batch) {
  TorchBatch made;
  std::set<std::string> columns;
  for (const BatchColumn& column : batch.columns()) columns.insert(column.column.name());
  const auto add_beside = [&](std::string name, const Tensor& tensor) {
    if (!columns.contains(name)) made.add(std::move(name), to_torch(tensor));
  };
  for (const BatchColumn& column : batch.columns()) {
    const std::string name = column.column.name();
    made.add(name, to_torch(column.values));
    if (column.column.has_ends() && !column.is_padded) {
      add_beside(name + ".offsets", column.offsets);
    }
    if (column.column.ragged && column.column.is_text()) {
      add_beside(name + ".item_offsets", column.item_offsets);
    }
    if (column.is_padded) add_beside(name + ".length", column.lengths);
    if (column.valid.dtype() == DType::bool_) add_beside(name + ".valid", column.valid);
  }
  return made;
}

/// A data set for torch's samplers; each batch is gathered in one call. A handle: torch copies it
/// for each worker thread, and the copies share the mapped data.
class TorchDataset {
 public:
  using BatchType = TorchBatch;                         ///< what get_batch() returns
  using BatchRequestType = c10::ArrayRef<std::size_t>;  ///< positions of rows
  static constexpr bool is_stateful = false;            ///< tells torch::data to use a sampler

  /// Creates a data set of the rows of `dataset`, batched with `options`.
  explicit TorchDataset(Dataset dataset, BatchOptions options = {})
      : dataset_(std::move(dataset)), options_(std::move(options)) {}

  /// Returns the rows at these positions.
  TorchBatch get_batch(BatchRequestType rows) {
    const std::vector<std::int64_t> positions(rows.begin(), rows.end());
    return to_torch(dataset_.rows(positions, options_));
  }
  /// The number of rows.
  std::optional<std::size_t> size() const { return static_cast<std::size_t>(dataset_.size()); }
  /// Returns a data set that applies `transform` to each batch, for example a
  /// torch::data::transforms::BatchLambda<TorchBatch, ...>.
  template <class Transform>
  auto map(Transform transform) const {
    return torch::data::datasets::map(*this, std::move(transform));
  }

 private:
  Dataset dataset_;
  BatchOptions options_;
};

/// The batches of a BatchLoader, epoch after epoch, as a stateful data set: the batch_size of
/// torch's loader is ignored. Copies share the loader, and any thread may take the next batch.
class TorchBatches {
 public:
  using BatchType = std::optional<TorchBatch>;  ///< what get_batch() returns
  using BatchRequestType = std::size_t;         ///< not used
  static constexpr bool is_stateful = true;     ///< tells torch::data not to use a sampler

  /// Creates a data set of the batches of `loader`.
  explicit TorchBatches(BatchLoader loader)
      : shared_(std::make_shared<Shared>(std::move(loader))) {}

  /// Returns the next batch; nullopt at the end of the epoch.
  BatchType get_batch(std::size_t /*batch_size*/) {
    const std::lock_guard lock(shared_->mutex);
    if (!shared_->stream) shared_->stream = shared_->loader.start();
    const std::optional<Batch> batch = shared_->loader.next(*shared_->stream);
    if (!batch) return std::nullopt;
    return to_torch(*batch);
  }
  /// The number of batches in an epoch.
  std::optional<std::size_t> size() const {
    return static_cast<std::size_t>(shared_->loader.size());
  }
  /// Makes the next get_batch() start the epoch in progress again, or the next epoch if none is in
  /// progress. Right after load_state_dict(), the next get_batch() starts at the position in that
  /// state.
  void reset() {
    const std::lock_guard lock(shared_->mutex);
    shared_->stream.reset();
  }
  /// Returns BatchLoader::state_dict(). It counts the batches that torch's loader has taken from
  /// this data set. With worker threads, torch's loader may not have returned all of them yet.
  std::string state_dict() const {
    const std::lock_guard lock(shared_->mutex);
    return shared_->loader.state_dict();
  }
  /// As BatchLoader::load_state_dict(). The next get_batch() returns the first batch after the
  /// position of that state.
  void load_state_dict(std::string_view json) {
    const std::lock_guard lock(shared_->mutex);
    shared_->loader.load_state_dict(json);
    shared_->stream.reset();
  }
  /// Returns a data set that applies `transform` to each batch.
  template <class Transform>
  auto map(Transform transform) const {
    return torch::data::datasets::map(*this, std::move(transform));
  }

 private:
  struct Shared {
    explicit Shared(BatchLoader batches) : loader(std::move(batches)) {}
    std::mutex mutex;
    BatchLoader loader;
    std::shared_ptr<BatchStream> stream;
  };
  std::shared_ptr<Shared> shared_;
};

/// Returns a data set for torch::data::make_data_loader() with one of torch's samplers.
inline TorchDataset torch_dataset(Dataset dataset, BatchOptions options = {}) {
  return TorchDataset(std::move(dataset), std::move(options));
}
/// Returns a data set for torch::data::make_data_loader() in the order of `loader`.
inline TorchBatches torch_dataset(BatchLoader loader) { return TorchBatches(std::move(loader)); }

}  // namespace tenfold

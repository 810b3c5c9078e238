#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include <tenfold/sharded_writer.hpp>

#include "checkpoint/shard_ticket.hpp"
#include "formats/shared/boxes.hpp"

namespace tenfold::checkpoint {

/// A box with a checksum.
struct SummedBox {
  detail::formats::Box box;
  std::uint64_t checksum = 0;
};

/// A box that one process writes, or that is the same as another one.
struct PlannedShard {
  ShardBox shard;
  bool is_written = true;
  std::vector<SummedBox> parts;  ///< that have a checksum each
};

/// The files of a save by several processes, laid out beside the target. The destructor removes
/// what was not published.
class ShardedLayout {
 public:
  virtual ~ShardedLayout() = default;

  /// Of each tensor, in the order of for_each_leaf; or of each shard, which then lies as a tensor
  /// of its own.
  const std::vector<TensorPlace>& places() const noexcept { return places_; }
  const std::vector<StagedFile>& files() const noexcept { return files_; }
  /// Absolute.
  const std::string& staging() const noexcept { return staging_; }
  virtual bool is_folder() const noexcept = 0;

  /// Writes what only the coordinator knows and puts everything at the target. `tree` holds the
  /// tensors of the layout. `boxes`: of each place.
  virtual void publish(const TensorDict& tree,
                       const std::vector<std::vector<SummedBox>>& boxes) = 0;

 protected:
  std::vector<TensorPlace> places_;
  std::vector<StagedFile> files_;
  std::string staging_;
};

/// The tree with tensors of the same dtypes and shapes whose bytes nobody has: what is written of
/// it are its names. Throws Error(unsupported), naming the key, for nodes and tensors that are not
/// written in boxes (lazy stacks, sparse and nested tensors).
TensorDict outline_of(const TensorDict& tree);

/// Lays out an outline: one file if `path` ends in ".safetensors", else a folder. `boxes`: of each
/// tensor, those that will have a checksum. Throws as ShardedWriter's constructor.
std::unique_ptr<ShardedLayout> lay_out(const Path& path, const TensorDict& outline,
                                       const std::vector<std::vector<detail::formats::Box>>& boxes,
                                       const ShardedWriteOptions& options, const std::string& id);

/// Lays out a folder in which each shard that is written has a place of its own, in a file of its
/// rank: ShardLayout::shards and ShardLayout::torch. Those without elements have none.
std::unique_ptr<ShardedLayout> lay_out_shards(const Path& path, const TensorDict& outline,
                                              const std::vector<PlannedShard>& shards,
                                              const ShardedWriteOptions& options,
                                              const std::string& id);

/// What layouts share.

/// The tensors of an outline in order, found by the source that no two of them share.
class OutlineNumbers {
 public:
  explicit OutlineNumbers(const TensorDict& outline, std::vector<TensorPlace>* places = nullptr);

  std::size_t size() const noexcept { return numbers_.size(); }
  std::size_t of(const Leaf& leaf) const;

 private:
  std::unordered_map<const detail::LeafSource*, std::size_t> numbers_;
};

[[noreturn]] void refuse_other_tensors(const Path& path);

/// Absolute, so that every process finds it from wherever it runs.
Path beside(const Path& path, const std::string& name);

}  // namespace tenfold::checkpoint

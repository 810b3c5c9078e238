#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <tenfold/leaf.hpp>
#include <tenfold/sharded_writer.hpp>
#include <tenfold/tensordict.hpp>

#include "checkpoint/shard_ticket.hpp"
#include "formats/safetensors/tree.hpp"
#include "formats/shared/boxes.hpp"

namespace tenfold::checkpoint {

/// A box and the checksum of its bytes.
struct SummedBox {
  detail::formats::Box box;
  std::uint64_t checksum = 0;
};

/// A box of one rank. If several ranks have the same box, only one of them writes it.
struct PlannedShard {
  ShardBox shard;
  bool is_written = true;        ///< false: an equal box is written instead
  std::vector<SummedBox> parts;  ///< parts of the box, each with a checksum
};

/// The tree that is published.
struct PublishedTree {
  struct Tensor {
    Leaf leaf;
    std::optional<std::size_t> number;  ///< in the order of the plan; empty: it was not planned
  };
  TensorDict outline;
  std::vector<Tensor> tensors;  ///< in the order of for_each_leaf
};

/// The files of a save by several processes, created next to the target. The destructor removes
/// them unless they were published.
class ShardedLayout {
 public:
  virtual ~ShardedLayout() = default;

  /// Returns the location of each tensor, in the order of for_each_leaf, or of each shard if shards
  /// are stored as separate tensors.
  const std::vector<TensorPlace>& places() const noexcept { return places_; }
  const std::vector<StagedFile>& files() const noexcept { return files_; }
  /// The absolute path of the staged file or folder.
  const std::string& staging() const noexcept { return staging_; }
  virtual bool is_folder() const noexcept = 0;

  /// Writes everything but the ranks' bytes and renames the files to the target. `tree`: has all
  /// planned tensors, with their keys, dtypes and shapes, in order; in ShardLayout::plain, it may
  /// have others. `boxes`: one list for each location.
  virtual void publish(const PublishedTree& tree,
                       const std::vector<std::vector<SummedBox>>& boxes) = 0;

 protected:
  std::vector<TensorPlace> places_;
  std::vector<StagedFile> files_;
  std::string staging_;
};

/// Returns the tree with tensors of the same dtypes and shapes but without bytes. Throws
/// Error(unsupported), naming the key, for nodes and tensors that cannot be written in boxes (lazy
/// stacks, opaque nodes, sparse and nested tensors); Error(invalid_argument) for nodes nested too
/// deep.
TensorDict outline_of(const TensorDict& tree);

/// Creates the files for an outline in the format that the options or the suffix of `path` select:
/// one safetensors file, shards and their index (".safetensors.index.json"), or a folder.
/// `boxes`: for each tensor, the boxes that will have a checksum. Throws like ShardedWriter's
/// constructor.
std::unique_ptr<ShardedLayout> lay_out(const Path& path, const TensorDict& outline,
                                       const std::vector<std::vector<detail::formats::Box>>& boxes,
                                       const ShardedWriteOptions& options, const std::string& id);

/// lay_out() for a path that ends in ".safetensors.index.json".
std::unique_ptr<ShardedLayout> lay_out_index(
    const Path& path, const TensorDict& outline,
    const std::vector<std::vector<detail::formats::Box>>& boxes, const ShardedWriteOptions& options,
    const std::string& id);

/// Creates a folder in which each written shard is stored separately, in a file of its rank:
/// ShardLayout::shards and ShardLayout::torch. Shards without elements are not stored.
std::unique_ptr<ShardedLayout> lay_out_shards(const Path& path, const TensorDict& outline,
                                              const std::vector<PlannedShard>& shards,
                                              const ShardedWriteOptions& options,
                                              const std::string& id);

/// The numbers of an outline's tensors in order. Finds a tensor by its source, because each tensor
/// of an outline has its own.
class OutlineNumbers {
 public:
  explicit OutlineNumbers(const TensorDict& outline, std::vector<TensorPlace>* places = nullptr);

  std::size_t size() const noexcept { return numbers_.size(); }
  std::size_t of(const Leaf& leaf) const;

 private:
  std::unordered_map<const detail::LeafSource*, std::size_t> numbers_;
};

[[noreturn]] void refuse_other_tensors(const Path& path);

/// Returns the header of a safetensors file, with zeros for the checksums of the tensors' boxes.
/// `boxes`: for each tensor; null: no checksums.
std::string blank_header(
    const std::vector<const detail::formats::safetensors::Plan::Tensor*>& tensors,
    detail::formats::safetensors::Metadata metadata,
    const std::vector<std::vector<detail::formats::Box>>* boxes);

/// Returns the path of a sibling of `path`, absolute because processes may have different working
/// directories.
Path beside(const Path& path, const std::string& name);

}  // namespace tenfold::checkpoint

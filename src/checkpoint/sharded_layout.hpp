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

/// A box of one rank. If several boxes of a tensor have equal bounds, only one of them is written.
struct PlannedShard {
  ShardBox shard;
  bool is_written = true;        ///< false: an equal box is written instead
  std::vector<SummedBox> parts;  ///< parts of the box, each with a checksum
};

/// The tree that is published.
struct PublishedTree {
  struct Tensor {
    Leaf leaf;
    std::optional<std::size_t> number;  ///< index among the planned tensors; nullopt if not planned
  };
  TensorDict outline;
  std::vector<Tensor> tensors;  ///< in the order of for_each_leaf
};

/// The files of a save by several processes, created next to the target. The destructor removes
/// them unless they were published.
class ShardedLayout {
 public:
  virtual ~ShardedLayout() = default;

  /// Returns the location of each tensor, in the order of for_each_leaf. If shards are stored as
  /// separate tensors, returns the location of each shard instead.
  const std::vector<TensorPlace>& places() const noexcept { return places_; }
  const std::vector<StagedFile>& files() const noexcept { return files_; }
  /// The absolute path of the staged file or folder.
  const std::string& staging() const noexcept { return staging_; }
  virtual bool is_folder() const noexcept = 0;
  /// Returns true after publish() began changes that it cannot repeat. If publish() then failed, it
  /// must not be called again.
  bool has_begun() const noexcept { return has_begun_; }

  /// Writes everything that the ranks have not written, and renames the files to the target.
  /// `tree` must contain all planned tensors, with the planned keys, dtypes, shapes and order. It
  /// may contain additional tensors only with ShardLayout::plain. `boxes`: a list of boxes for each
  /// element of places().
  virtual void publish(const PublishedTree& tree,
                       const std::vector<std::vector<SummedBox>>& boxes) = 0;

 protected:
  std::vector<TensorPlace> places_;
  std::vector<StagedFile> files_;
  std::string staging_;
  bool has_begun_ = false;
};

/// Returns a copy of the tree whose tensors have the dtypes and shapes, but no bytes. Throws
/// Error(unsupported), naming the key, for nodes and tensors that cannot be written in boxes (lazy
/// stacks, opaque nodes, sparse and nested tensors); Error(invalid_argument) for nodes nested too
/// deeply.
TensorDict outline_of(const TensorDict& tree);

/// Creates the files for an outline in the format that the options or the suffix of `path` select:
/// one safetensors file, shards and their index (".safetensors.index.json"), or a folder.
/// `boxes`: for each tensor, the boxes that will have a checksum. Throws like ShardedWriter's
/// constructor.
std::unique_ptr<ShardedLayout> lay_out(const Path& path, const TensorDict& outline,
                                       const std::vector<std::vector<detail::formats::Box>>& boxes,
                                       const ShardedWriteOptions& options, const std::string& id);

/// Implements lay_out() for a path that ends in ".safetensors.index.json".
std::unique_ptr<ShardedLayout> lay_out_index(
    const Path& path, const TensorDict& outline,
    const std::vector<std::vector<detail::formats::Box>>& boxes, const ShardedWriteOptions& options,
    const std::string& id);

/// Creates a folder for ShardLayout::shards or ShardLayout::torch, in which each written shard is
/// a separate tensor. No two ranks write into the same file; publish() adds the headers. Shards
/// without elements have no bytes in a file.
std::unique_ptr<ShardedLayout> lay_out_shards(const Path& path, const TensorDict& outline,
                                              const std::vector<PlannedShard>& shards,
                                              const ShardedWriteOptions& options,
                                              const std::string& id);

/// Numbers the tensors of an outline from 0, in the order of for_each_leaf. Finds the number of a
/// tensor by its LeafSource, because each tensor of an outline has its own LeafSource.
class OutlineNumbers {
 public:
  explicit OutlineNumbers(const TensorDict& outline, std::vector<TensorPlace>* places = nullptr);

  std::size_t size() const noexcept { return numbers_.size(); }
  std::size_t of(const Leaf& leaf) const;

 private:
  std::unordered_map<const detail::LeafSource*, std::size_t> numbers_;
};

/// Throws the Error(invalid_argument) for a tree to publish whose tensors are not the planned ones.
[[noreturn]] void refuse_other_tensors(const Path& path);

/// Returns the header of a safetensors file, with zeros for the checksums of the tensors' boxes.
/// `boxes`: the boxes of each tensor; null if the header has no checksums.
std::string blank_header(
    const std::vector<const detail::formats::safetensors::Plan::Tensor*>& tensors,
    detail::formats::safetensors::Metadata metadata,
    const std::vector<std::vector<detail::formats::Box>>* boxes);

/// Returns the path of `name` in the folder that contains `path`. The path is absolute, because the
/// processes may have different working directories.
Path beside(const Path& path, const std::string& name);

}  // namespace tenfold::checkpoint

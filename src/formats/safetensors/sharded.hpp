#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <tenfold/tensordict.hpp>

#include "formats/safetensors/shard_transaction.hpp"
#include "formats/safetensors/tree.hpp"
#include "formats/shared/commit.hpp"
#include "formats/shared/hub_index.hpp"
#include "os/fs/directory.hpp"
#include "os/fs/file.hpp"

namespace tenfold::detail::formats::safetensors {

// Plans and writes shards and their index.

/// The tensors of one shard.
struct Shard {
  std::vector<Plan::Tensor> tensors;         ///< in the order of the tree
  std::vector<const Plan::Tensor*> ordered;  ///< `tensors` in file order
};

/// The shards for a tree, and their index.
struct ShardedPlan {
  Plan plan;       ///< its tensors were moved to the shards
  HubIndex index;  ///< without the names of the shards
  std::vector<Shard> shards;
  std::uint64_t total_bytes = 0;  ///< of all tensors
};

/// Distributes the tensors to shards in the order of the tree. A shard has at most
/// `shard_size_bytes` of tensors (0: 5 GB); a larger tensor gets its own shard. If `is_last` is
/// given, the tensors for which it returns true are in further shards after those of the other
/// tensors. Throws like make_plan().
ShardedPlan plan_shards(const TensorDict& tree, bool notes, std::uint64_t shard_size_bytes,
                        const std::function<bool(const Leaf&)>& is_last = nullptr);

/// The `__metadata__` of every shard, without checksums.
Metadata shard_metadata();

/// Replaces an index and its shards atomically. The caller writes the shards; publish() writes the
/// index that names them. Without publish() the destructor removes the new shards.
class IndexReplacement {
 public:
  /// Chooses the names of the shards, and writes them to a list for the removal of leftovers
  /// (ShardTransaction). Throws like FileReplacement, and Error(unsupported) if `path` is not the
  /// name of an index.
  IndexReplacement(const Path& path, const ShardedPlan& plan, bool durable);

  /// The folder that contains the index and its shards.
  os::Directory& folder() noexcept { return parent_.directory; }
  /// The new index, under a temporary name until publish().
  FileReplacement& index() noexcept { return *index_; }
  /// The names of the shards, in the order of ShardedPlan::shards.
  const std::vector<std::string>& names() const noexcept { return names_; }
  /// Creates the file names()[number].
  os::File create_shard(std::size_t number) {
    return shards_->create(names_[number], index_->old_info());
  }

  /// Chooses names for further shards, for the tensors that ranks pass to
  /// ShardWriter::add_values(), and adds the names to names(). Call at most once.
  void add_value_shards(std::size_t count);

  /// Call when all shards are written and, for a durable save, synced. Writes the index of `plan`,
  /// which has one shard for each of names(), and replaces the old index by it. With `checksums`,
  /// the index has a checksum of its own. Throws like FileReplacement::publish().
  void publish(const ShardedPlan& plan, bool checksums);

 private:
  bool durable_;
  os::Parent parent_;
  std::optional<FileReplacement> index_;
  std::optional<ShardTransaction> shards_;
  std::vector<std::string> names_;
};

}  // namespace tenfold::detail::formats::safetensors

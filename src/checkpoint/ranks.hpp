#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tenfold/checkpoint_manager.hpp>

#include "checkpoint/state.hpp"

namespace tenfold::checkpoint {

/// A save of one step by several processes. Rank 0 makes it, all ranks write their entries below
/// its hidden folder, rank 0 publishes; without that the hidden folder is removed. What ranks say
/// to each other is the caller's business. Members may be called from any thread, one at a time.
class RankedSave {
 public:
  /// `replicated`: what rank 0 writes for all. Throws as CheckpointManager::save() does.
  RankedSave(const CheckpointManager& manager, std::int64_t step, const TensorDict& replicated,
             const CheckpointSaveOptions& options, const RanksPlan& ranks);

  /// Where ranks write, relative to the manager's directory; empty if they have no entries.
  std::string ranks_path() const;
  /// What write_shards() of that rank is called with: one for each sharded entry.
  std::vector<std::string> tickets(int rank) const;
  /// Writes the replicated entries.
  void write(Monitor* monitor);
  /// Makes it a step, with the entries that write_rank_entries() gave on every rank, and what
  /// write_shards() gave on each. Throws Error(io) if an entry is not here: the ranks do not share
  /// the directory; Error(invalid_argument) if a part of a sharded entry was not written.
  Path publish(const std::vector<CheckpointEntry>& of_ranks,
               const std::vector<std::vector<std::string>>& receipts = {});

 private:
  std::shared_ptr<Internals::State> state_;
  std::unique_ptr<PendingSave> save_;
};

/// Writes the entries of one rank into the folder that rank 0 made.
std::vector<CheckpointEntry> write_rank_entries(const CheckpointManager& manager, std::int64_t step,
                                                const std::string& ranks_path, std::int64_t rank,
                                                const TensorDict& state, Monitor* monitor);

/// Writes what one rank has of the sharded entries: nodes whose tensors are the rank's boxes, in
/// the order in which they were planned. Returns a receipt for each entry.
std::vector<std::string> write_shards(const CheckpointManager& manager,
                                      const std::vector<std::string>& tickets,
                                      const TensorDict& parts, Monitor* monitor);

/// Bytes of the entries. Throws Error(unsupported), naming the key, for what cannot be stored.
std::uint64_t planned_bytes(const CheckpointManager& manager, const TensorDict& state);

/// What two processes compare of an entry that both of them have.
struct EntryDigest {
  std::string name;
  std::string structure;  ///< of keys, dtypes and shapes
  std::string values;     ///< of what is no tensor
};
std::vector<EntryDigest> entry_digests(const TensorDict& state);
/// Of the bytes of all tensors of each entry.
std::vector<std::pair<std::string, std::string>> tensor_digests(const TensorDict& state);

}  // namespace tenfold::checkpoint

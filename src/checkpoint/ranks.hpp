#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tenfold/checkpoint_manager.hpp>

#include "checkpoint/state.hpp"

namespace tenfold::checkpoint {

/// A save of one step by several processes. Rank 0 creates a hidden folder, all ranks write their
/// entries into it, and rank 0 publishes it. The destructor removes the hidden folder unless it was
/// published. The caller transfers messages between the ranks. Members may be called from any
/// thread, but not concurrently.
class RankedSave {
 public:
  /// `replicated`: the entries that rank 0 writes for all ranks. Throws like
  /// CheckpointManager::save() and the constructor of ShardedWriter, and Error(invalid_argument)
  /// for a sharded entry whose format is neither safetensors nor memmap.
  RankedSave(const CheckpointManager& manager, std::int64_t step, const TensorDict& replicated,
             const CheckpointSaveOptions& options, const RanksPlan& ranks);

  /// The folder into which ranks write their own entries, relative to the manager's directory;
  /// empty if no rank has an entry of its own.
  std::string ranks_path() const;
  /// Returns the tickets for write_shards() on `rank`, one for each sharded entry.
  std::vector<std::string> tickets(int rank) const;
  /// Writes the replicated entries.
  void write(Monitor* monitor);
  /// Publishes the step and returns its folder. `of_ranks`: the entries that write_rank_entries()
  /// returned on all ranks. `receipts`: the results of write_shards() on all ranks. Throws
  /// Error(file_not_found) if rank 0 does not see the files of an entry. Throws Error(io) if rank 0
  /// sees another size of the files than the rank that wrote them, or is no longer the writer of
  /// the directory. Throws Error(invalid_argument) if a part of a sharded entry was not written.
  Path publish(const std::vector<CheckpointEntry>& of_ranks,
               const std::vector<std::vector<std::string>>& receipts = {});

 private:
  std::shared_ptr<Internals::State> state_;
  std::unique_ptr<PendingSave> save_;
};

/// Writes the entries of `state`, which belong to `rank` only, into the folder `ranks_path` that
/// rank 0 created (RankedSave::ranks_path()). Returns the entries for RankedSave::publish().
std::vector<CheckpointEntry> write_rank_entries(const CheckpointManager& manager, std::int64_t step,
                                                const std::string& ranks_path, std::int64_t rank,
                                                const TensorDict& state, Monitor* monitor);

/// Writes one rank's boxes of the sharded entries. `parts`: a node for each sharded entry, in the
/// order of `tickets`; its tensors are the rank's boxes. Returns a receipt for each entry.
std::vector<std::string> write_shards(const CheckpointManager& manager,
                                      const std::vector<std::string>& tickets,
                                      const TensorDict& parts, Monitor* monitor);

/// Returns the total size in bytes of the tensors in `state` (tensors of an entry over the same
/// bytes count once) and of the entries that are stored as JSON. Throws like plan_entries().
std::uint64_t planned_bytes(const CheckpointManager& manager, const TensorDict& state);

/// Digests of an entry. The processes compare them to find entries that differ between ranks.
struct EntryDigest {
  std::string name;
  std::string structure;  ///< digest of keys, dtypes and shapes
  std::string values;     ///< digest of the values that are not tensors
};
std::vector<EntryDigest> entry_digests(const TensorDict& state);
/// Returns the name of each entry and a digest of the bytes of its tensors. Only entries that are
/// nodes are read: an entry that is itself a tensor gets the digest of no bytes.
std::vector<std::pair<std::string, std::string>> tensor_digests(const TensorDict& state);

}  // namespace tenfold::checkpoint

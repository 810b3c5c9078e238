#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/io.hpp>

namespace tenfold {

/// Options of save_snapshot().
struct SnapshotOptions {
  bool durable = true;    ///< fsync the files before the call returns
  bool checksums = true;  ///< store checksums with the data
  int num_threads = 0;    ///< 0: TENFOLD_NUM_THREADS, or min(8, cores)
  bool overwrite = true;  ///< false: Error(io) with errno EEXIST if `path` exists
  /// Globs over paths such as "model/encoder/weight". torchsnapshot can restore the matching
  /// entries on every rank.
  std::vector<std::string> replicated{};
  std::uint64_t slab_bytes = std::uint64_t{128} << 20;  ///< tensors of fewer bytes share files
  /// Tensors of more bytes are split into chunks.
  std::uint64_t chunk_bytes = std::uint64_t{512} << 20;
  Monitor* monitor = nullptr;  ///< observes the call
};

/// Saves a tree as a snapshot of world size 1, which torchsnapshot 0.1.0 can restore. The keys of
/// the root become the keys of torchsnapshot's app_state. Equivalent to save() with the format
/// "snapshot", with more options.
TENFOLD_API Path save_snapshot(const TensorDict& tree, const Path& path,
                               const SnapshotOptions& options = {});

/// Returns the index of the snapshot at `path` as JSON: {"version", "world_size", "manifest":
/// {path: entry}}, where paths begin with the rank. Throws Error(file_not_found), Error(corrupt).
TENFOLD_API std::string snapshot_metadata(const Path& path);

/// Opens the entries that one rank restores from the snapshot at `path`: its own entries,
/// replicated entries, and complete sharded tensors. For a rank that is not in the snapshot,
/// returns the containers of rank 0; access to an entry that belongs to a single rank then throws
/// Error(key_not_found). Throws like open(), and Error(invalid_argument) for a negative rank.
TENFOLD_API TensorDict open_snapshot(const Path& path, std::int64_t rank);

/// A tensor whose parts are distributed over processes (ranks). In the tree of a rank, the tensor
/// is a list of the parts that the rank has. A part that several ranks have is written once.
struct SnapshotShards {
  KeyPath key;                       ///< path of the list
  DType dtype = DType::float32;      ///< dtype of the parts
  Shape shape{};                     ///< shape of the whole tensor
  std::vector<Shape> offsets{};      ///< index of each part's first element in the whole tensor
  bool is_dtensor = false;           ///< true: torch's DTensor; false: a ShardedTensor
  Shape mesh_shape{};                ///< DTensor: shape of the device mesh
  std::vector<std::int64_t> mesh{};  ///< DTensor: the ranks of the mesh, row-major
  /// DTensor: for each tensor dimension, the mesh dimensions that shard it; {-1} if none does.
  std::vector<std::vector<std::int64_t>> dim_map{};
};

/// Writes the part of one rank in a snapshot of several processes.
///
///   SnapshotPart part(tree, rank, world_size);        // on each rank
///   SnapshotWriter writer(path, outlines);            // on one rank, with all part.outline()
///   receipt = part.write(ticket);                     // on each rank, with writer.ticket()
///   writer.publish(receipts);                         // on the rank of the writer
///
/// Outlines, tickets and receipts are strings, which the program transfers between its processes.
///
/// A moved-from SnapshotPart or SnapshotWriter can only be assigned or destroyed.
class TENFOLD_API SnapshotPart {
 public:
  /// Creates the part of this rank. `tree` is as for save_snapshot(). Entries that match
  /// SnapshotOptions::replicated, and that all ranks have, are written once; the ranks share this
  /// work. Whether the snapshot is durable and has checksums depends only on the options of the
  /// SnapshotWriter. Throws Error(unsupported), naming the key of an entry that a snapshot does not
  /// support. Throws Error(invalid_argument) if `shards` do not fit the tree, or unless
  /// 0 <= rank < world_size.
  SnapshotPart(const TensorDict& tree, std::int64_t rank, std::int64_t world_size,
               std::vector<SnapshotShards> shards = {}, const SnapshotOptions& options = {});
  /// Moves the part.
  SnapshotPart(SnapshotPart&&) noexcept;
  /// Moves the part.
  SnapshotPart& operator=(SnapshotPart&&) noexcept;
  ~SnapshotPart();

  /// Returns the description of this rank for the SnapshotWriter.
  std::string outline() const;

  /// Writes the files of this rank and returns the receipt. Throws Error(invalid_argument) if
  /// `ticket` is not a ticket or is for another number of ranks. Throws Error(io) naming host and
  /// path if this process does not see the folder that the SnapshotWriter has created.
  std::string write(std::string_view ticket, Monitor* monitor = nullptr);

 private:
  class TENFOLD_LOCAL State;
  std::unique_ptr<State> state_;
};

/// Coordinates the SnapshotParts of all ranks. Creates a folder next to `path`; publish() writes
/// the metadata and moves the folder to `path` atomically, as save() does. Without publish(), the
/// destructor removes the folder, and `path` is unchanged. If the process crashes, the next save to
/// `path` removes the folder.
class TENFOLD_API SnapshotWriter {
 public:
  /// Creates the folder of the snapshot. `outlines`: the outline() of every rank, in rank order.
  /// Throws Error(invalid_argument), naming the entry, if a replicated entry differs between ranks,
  /// or if shards overlap or do not cover the tensor. Also throws Error(invalid_argument) unless
  /// there is exactly one outline of each rank, or if `path` is a folder with files that the
  /// snapshot in it does not name. Throws Error(io) (ENOSPC) if the disk is too small.
  SnapshotWriter(const Path& path, std::span<const std::string> outlines,
                 const SnapshotOptions& options = {});
  /// Moves the writer.
  SnapshotWriter(SnapshotWriter&&) noexcept;
  /// Moves the writer.
  SnapshotWriter& operator=(SnapshotWriter&&) noexcept;
  /// Removes unpublished files.
  ~SnapshotWriter();

  /// Returns the argument for SnapshotPart::write(), the same for all ranks.
  std::string ticket() const;

  /// Publishes the snapshot. `receipts`: from all ranks, in rank order. Throws
  /// Error(invalid_argument) if a receipt is missing or belongs to another save, or if an entry or
  /// a part of an entry is in no receipt. Also throws it if the snapshot is already published, or
  /// if an earlier call failed while it wrote the metadata.
  void publish(std::span<const std::string> receipts);

 private:
  class TENFOLD_LOCAL State;
  std::unique_ptr<State> state_;
};

}  // namespace tenfold

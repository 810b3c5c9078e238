#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/io.hpp>

namespace tenfold {

/// Options of save_snapshot(). Those that save() has as well mean the same.
struct SnapshotOptions {
  bool durable = true;    ///< fsynced when the call returns
  bool checksums = true;  ///< store them with the data
  int num_threads = 0;    ///< 0: min(8, cores)
  bool overwrite = true;  ///< false: Error(io) with errno EEXIST if `path` exists
  /// Globs over paths like "model/encoder/weight": entries that torchsnapshot may give to any rank.
  std::vector<std::string> replicated{};
  std::uint64_t slab_bytes = std::uint64_t{128} << 20;   ///< tensors below this share files
  std::uint64_t chunk_bytes = std::uint64_t{512} << 20;  ///< tensors above this are split
  Monitor* monitor = nullptr;                            ///< observes the call
};

/// Saves a tree as a snapshot of world size 1, which torchsnapshot 0.1.0 can restore. The keys of
/// the root are those of its app_state. Equivalent to save() with the format "snapshot".
TENFOLD_API Path save_snapshot(const TensorDict& tree, const Path& path,
                               const SnapshotOptions& options = {});

/// Returns the index of the snapshot at `path` as JSON: {"version", "world_size", "manifest":
/// {path: entry}}, where paths begin with the rank. Throws Error(file_not_found), Error(corrupt).
TENFOLD_API std::string snapshot_metadata(const Path& path);

/// Opens what one rank would restore of the snapshot at `path`: its own entries, those that are
/// replicated, and the sharded tensors of all ranks made whole. A rank that took no part in the
/// snapshot sees the containers of rank 0, and entries that each rank has for itself throw
/// Error(key_not_found) when they are asked for. Throws as open().
TENFOLD_API TensorDict open_snapshot(const Path& path, std::int64_t rank);

/// A tensor of which each of several processes (ranks) has parts. In the tree of a rank it is a
/// list of its parts. Parts that several ranks have are written once.
struct SnapshotShards {
  KeyPath key;                       ///< of the list
  DType dtype = DType::float32;      ///< of the parts
  Shape shape{};                     ///< of the whole tensor
  std::vector<Shape> offsets{};      ///< of each part's first element in it
  bool is_dtensor = false;           ///< torch's DTensor; false: a ShardedTensor
  Shape mesh_shape{};                ///< DTensor: of the device mesh
  std::vector<std::int64_t> mesh{};  ///< DTensor: the ranks of the mesh, row-major
  /// DTensor: for each dimension of the tensor the mesh dimensions that it is cut along, or {-1}.
  std::vector<std::vector<std::int64_t>> dim_map{};
};

/// The part of one rank in a snapshot that several processes write together.
///
///   SnapshotPart part(tree, rank, world_size);        // on each rank
///   SnapshotWriter writer(path, outlines);            // on one, with part.outline() of all ranks
///   receipt = part.write(ticket);                     // on each, with writer.ticket()
///   writer.publish(receipts);                         // on the one, with those of all ranks
///
/// Outlines, tickets and receipts are text, to be sent by whatever the processes talk with.
class TENFOLD_API SnapshotPart {
 public:
  /// `tree`: as for save_snapshot(). Entries that match SnapshotOptions::replicated, and that all
  /// ranks have, are written once, the work spread over the ranks; of `options`, the coordinator
  /// says whether the snapshot is durable and has checksums. Throws Error(unsupported), naming the
  /// key, for what a snapshot cannot hold, Error(invalid_argument) if `shards` do not fit the tree.
  SnapshotPart(const TensorDict& tree, std::int64_t rank, std::int64_t world_size,
               std::vector<SnapshotShards> shards = {}, const SnapshotOptions& options = {});
  SnapshotPart(SnapshotPart&&) noexcept;
  SnapshotPart& operator=(SnapshotPart&&) noexcept;
  ~SnapshotPart();

  /// What the coordinator needs to know of this rank.
  std::string outline() const;

  /// Writes the files of this rank and returns the receipt. Throws Error(invalid_argument) for a
  /// text that is no ticket, Error(io) naming host and path if this process does not see the
  /// coordinator's folder.
  std::string write(std::string_view ticket, Monitor* monitor = nullptr);

 private:
  class State;
  std::unique_ptr<State> state_;
};

/// The coordinator's part: it makes the folder beside `path`, and puts it there, metadata written
/// last, by one system call once all ranks have written. Without publish() the destructor removes
/// the folder, and `path` is as it was; what a killed coordinator leaves is removed by the next
/// save to `path`.
class TENFOLD_API SnapshotWriter {
 public:
  /// `outlines`: of all ranks, in order. Throws Error(invalid_argument) naming entry and ranks if a
  /// replicated entry has other dtypes, shapes or values on some ranks, or if shards overlap or
  /// leave elements out, and if `path` holds files that no snapshot names; Error(io) (ENOSPC) if
  /// the snapshot cannot fit.
  SnapshotWriter(const Path& path, std::span<const std::string> outlines,
                 const SnapshotOptions& options = {});
  SnapshotWriter(SnapshotWriter&&) noexcept;
  SnapshotWriter& operator=(SnapshotWriter&&) noexcept;
  ~SnapshotWriter();

  /// What each rank writes; the same for all.
  std::string ticket() const;

  /// Publishes the snapshot. Throws Error(invalid_argument), naming what is missing, unless there
  /// is a receipt of each rank, in order, and these name all that was to be written.
  void publish(std::span<const std::string> receipts);

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace tenfold

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/export.hpp>
#include <tenfold/io.hpp>

namespace tenfold {

/// A box of one tensor that one process (rank) writes.
struct ShardBox {
  std::size_t tensor = 0;  ///< index of the tensor among all tensors, in for_each_leaf order
  Shape offsets{};         ///< index of the box's first element in the tensor
  Shape sizes{};           ///< shape of the box; if it contains a 0, nothing is written
  int rank = 0;            ///< the process that writes the box
};

/// The files of a tree that several processes write.
enum class ShardLayout : std::uint8_t {
  /// One `.safetensors` file, safetensors shards with their `.safetensors.index.json`, or one
  /// memory-mapped folder of tensordict. Except for the stored checksums, the files do not depend
  /// on the number of ranks.
  plain,
  /// A folder with one safetensors file per rank (several if a rank has several boxes of one
  /// tensor), named as by torch's HuggingFaceStorageWriter (`save_distributed=True`), and
  /// `metadata.json`.
  shards,
  /// A folder of torch.distributed.checkpoint: one `.distcp` file per rank and one for JSON values,
  /// `.metadata`, and `metadata.json`.
  torch,
};

/// Options of ShardedWriter.
struct ShardedWriteOptions {
  ShardLayout layout = ShardLayout::plain;  ///< the layout of the files
  /// ShardLayout::plain: "safetensors" or "memmap"; other layouts: "dcp"; empty: by suffix, as for
  /// save().
  std::string format{};
  bool durable = true;  ///< fsync the files before publish() returns
  /// Store checksums with the data, at least one for every 16 MiB of a box. ShardLayout::torch
  /// always has the CRC-32s of its format.
  bool checksums = true;
  bool overwrite = true;  ///< false: Error(io) with errno EEXIST if `path` exists
  /// safetensors: bytes to reserve in the header for JSON values that are not known yet. If they do
  /// not suffice, publish() inserts space at the beginning of the file. Where the file system
  /// cannot insert space (only ext4 and XFS can), publish() copies the data once instead.
  std::uint64_t value_bytes = 0;
  /// Ranks may pass values that contain tensors by ShardWriter::add_values(). ShardLayout::plain
  /// only.
  bool accepts_values = false;
  /// `.safetensors.index.json`: greatest size of a shard, unless a single tensor is larger; 0: 5
  /// GB.
  std::uint64_t shard_size_bytes = 0;
};

/// Coordinates several processes that write one tree as one `.safetensors` file, as shards and
/// their index, or as one folder. In ShardLayout::plain, the files do not depend on the number of
/// processes, except for the stored checksums.
///
/// One process is the coordinator. It creates the files next to `path`, reserves disk space for all
/// bytes, and returns a ticket for each rank. A ShardWriter on that rank writes its boxes and
/// returns a receipt. publish() checks that all boxes were written, and renames the files to
/// `path`. Without publish(), the destructor removes the files, and `path` is unchanged. The next
/// save to `path` removes the leftovers of a crashed coordinator.
///
///     ShardedWriter writer(path, tree, boxes);          // on the coordinator
///     ShardWriter part(ticket);                         // on each rank, with writer.ticket(rank)
///     part.write(0, tensors);                           // the rank's boxes, from 0 on
///     receipt = part.finish();
///     writer.publish(receipts);                         // on the coordinator, with all of them
///
/// Tickets and receipts are strings, which the program transfers between its processes.
///
/// A moved-from ShardedWriter or ShardWriter can only be assigned or destroyed.
class TENFOLD_API ShardedWriter {
 public:
  /// Creates the files for `tree`; of its tensors, only dtype and shape are used. If several boxes
  /// are identical, only the first is written. Throws Error(unsupported) naming the key of an entry
  /// that the format does not support, and Error(io) (ENOSPC) if the disk is too small. Throws
  /// Error(invalid_argument):
  ///
  /// - if boxes overlap, exceed the tensor or do not cover it, naming the tensor and the ranks,
  /// - if the suffix of `path` or the option `format` selects a format that the layout does not
  ///   have,
  /// - for a shard size with a format without shards, and
  /// - if a folder at `path` has files that another program wrote.
  ShardedWriter(const Path& path, const TensorDict& tree, std::vector<ShardBox> boxes,
                const ShardedWriteOptions& options = {});
  /// Moves the writer.
  ShardedWriter(ShardedWriter&&) noexcept;
  /// Moves the writer.
  ShardedWriter& operator=(ShardedWriter&&) noexcept;
  /// Removes unpublished files.
  ~ShardedWriter();

  /// Returns the argument for the ShardWriter of that rank.
  std::string ticket(int rank) const;

  /// Publishes the tree. `receipts`: one from each rank that had boxes to write, in any order.
  /// Throws Error(invalid_argument), naming a tensor and its rank, if a receipt is missing. Also
  /// throws it if a receipt belongs to another save, if the tree is already published, or if an
  /// earlier call failed while it changed files. A call that throws Error(invalid_argument) leaves
  /// `path` unchanged.
  void publish(std::span<const std::string> receipts);
  /// Publishes the JSON values of `tree` instead of those given to the constructor. In
  /// ShardLayout::plain, `tree` may have further tensors, which this call writes. Also throws
  /// Error(invalid_argument) unless `tree` has the tensors given to the constructor, under the same
  /// keys and in the same order. Throws Error(unsupported) if the format does not support an entry,
  /// or if a header is longer than the format allows.
  void publish(std::span<const std::string> receipts, const TensorDict& tree);

  /// Returns the tree that a rank has passed by ShardWriter::add_values(). Compares its checksums,
  /// and maps its tensors from a temporary file or folder, which publish() removes. Throws
  /// Error(file_not_found) if the rank has passed none, Error(corrupt) if bytes do not match their
  /// checksums. Throws Error(invalid_argument) without ShardedWriteOptions::accepts_values, in
  /// layouts other than ShardLayout::plain, and after publish().
  TensorDict values(int rank) const;

 private:
  class TENFOLD_LOCAL State;
  std::unique_ptr<State> state_;
};

/// Writes the boxes of one rank in the save of a ShardedWriter.
class TENFOLD_API ShardWriter {
 public:
  /// Opens the coordinator's files. Throws Error(invalid_argument) if `ticket` is not a ticket.
  /// Throws Error(io) naming host and path if this process does not see the coordinator's files, or
  /// finds files of another save in their place. Throws Error(unsupported) in ShardLayout::plain if
  /// the coordinator is on another host and the file system (NFS, 9p, SMB, FUSE) could lose bytes.
  explicit ShardWriter(std::string_view ticket);
  /// Moves the writer.
  ShardWriter(ShardWriter&&) noexcept;
  /// Moves the writer.
  ShardWriter& operator=(ShardWriter&&) noexcept;
  /// Closes the files.
  ~ShardWriter();

  /// The number of boxes of this rank. write() numbers them in the order in which the coordinator
  /// passed them to the ShardedWriter.
  std::size_t num_boxes() const noexcept;

  /// Writes the boxes `first`, `first` + 1, ... of this rank. Each tensor has the shape of its box
  /// and the dtype of the whole tensor; its strides are arbitrary. Boxes may be written in any
  /// order, each once. Throws Error(invalid_argument), and writes none of the boxes, if a tensor
  /// does not fit its box or a box is already written. If it throws Error(io), none of these boxes
  /// counts as written. `num_threads` 0 means TENFOLD_NUM_THREADS or min(8, cores), divided by the
  /// number of ranks that write.
  void write(std::size_t first, std::span<const Tensor> tensors, int num_threads = 0,
             Monitor* monitor = nullptr);

  /// Passes a tree to the coordinator, where ShardedWriter::values() returns it. The tree contains
  /// values with tensors that were not in the tree given to the coordinator's constructor. Call
  /// this function at most once. `num_threads`: as for write(). Throws Error(unsupported), naming
  /// the key, for an entry that the coordinator could not write, Error(invalid_argument) without
  /// ShardedWriteOptions::accepts_values, and Error(io).
  void add_values(const TensorDict& tree, int num_threads = 0);

  /// Makes the written boxes durable if ShardedWriteOptions::durable is set, and returns the
  /// receipt. Throws Error(invalid_argument) naming a tensor if one of its boxes was not written.
  /// If it throws Error(io), no box counts as written.
  std::string finish();

 private:
  class TENFOLD_LOCAL State;
  std::unique_ptr<State> state_;
};

}  // namespace tenfold

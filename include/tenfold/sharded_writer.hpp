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
  std::size_t tensor = 0;  ///< the number of the tensor in the tree: for_each_leaf counts tensors
  Shape offsets{};         ///< of its first element in the tensor
  Shape sizes{};           ///< may hold zeros: nothing is written then
  int rank = 0;            ///< who writes it
};

/// How a tree lies on disk that several processes write.
enum class ShardLayout : std::uint8_t {
  /// One `.safetensors` file, or tensordict's folder, which does not tell who wrote what.
  plain,
  /// A folder with one safetensors file a rank, as torch's HuggingFaceStorageWriter names them
  /// (`save_distributed=True`), and `metadata.json`.
  shards,
  /// A folder of torch.distributed.checkpoint: one `.distcp` file a rank, `.metadata`, and
  /// `metadata.json`.
  torch,
};

struct ShardedWriteOptions {
  ShardLayout layout = ShardLayout::plain;
  bool durable = true;  ///< publish() returns after fsync
  /// Write them beside the data, one for each box of at most 16 MiB. ShardLayout::torch has the
  /// CRC-32s of its format in any case.
  bool checksums = true;
  bool overwrite = true;  ///< false: Error(io) with errno EEXIST if `path` exists
  /// safetensors: bytes of the header that are kept for JSON values that are not known yet. If they
  /// do not suffice, publish() copies the data once.
  std::uint64_t value_bytes = 0;
};

/// One tree that several processes write together, as one `.safetensors` file or one folder. In
/// ShardLayout::plain the result does not depend on the number of processes.
///
/// This is the coordinator's part. It lays the tree out beside `path`, with the space of all bytes
/// taken, and hands a ticket to each rank, whose ShardWriter writes that rank's boxes and gives a
/// receipt. publish() checks that every byte was written once and puts the tree at `path` by one
/// rename. Without it the destructor removes what was written, and `path` is as it was; what a
/// killed coordinator leaves is removed by the next save to `path`.
///
///     ShardedWriter writer(path, tree, boxes);          // on the coordinator
///     ShardWriter part(ticket);                         // on each rank, with writer.ticket(rank)
///     part.write(0, tensors);                           // those of its boxes, in their order
///     receipt = part.finish();
///     writer.publish(receipts);                         // on the coordinator, with all of them
///
/// Tickets and receipts are text, to be sent by whatever the processes talk with.
class TENFOLD_API ShardedWriter {
 public:
  /// Lays out `tree`, of whose tensors only dtype and shape are looked at. Throws
  /// Error(invalid_argument) naming the tensor and the ranks if boxes overlap, reach out of the
  /// tensor or leave elements out, or if `path` is of another format; Error(unsupported) naming the
  /// key for what the format cannot hold; Error(io) (ENOSPC) if it cannot fit. Of identical boxes
  /// the first is written, the others are not asked for.
  ShardedWriter(const Path& path, const TensorDict& tree, std::vector<ShardBox> boxes,
                const ShardedWriteOptions& options = {});
  /// Moves the writer.
  ShardedWriter(ShardedWriter&&) noexcept;
  /// Moves the writer.
  ShardedWriter& operator=(ShardedWriter&&) noexcept;
  /// Removes what was not published.
  ~ShardedWriter();

  /// What the ShardWriter of that rank is made with.
  std::string ticket(int rank) const;

  /// Publishes the tree. `receipts`: one of each rank that had boxes to write, in any order.
  /// Throws Error(invalid_argument) naming a tensor and its rank if a receipt is missing or belongs
  /// to another save; `path` is as it was then.
  void publish(std::span<const std::string> receipts);
  /// The same with the JSON values of `tree`, which holds the same tensors under the same keys.
  void publish(std::span<const std::string> receipts, const TensorDict& tree);

 private:
  class State;
  std::unique_ptr<State> state_;
};

/// The part of one rank in a ShardedWriter's save.
class TENFOLD_API ShardWriter {
 public:
  /// Opens what the coordinator has laid out. Throws Error(invalid_argument) for a text that is no
  /// ticket, Error(io) naming host and path if this process does not see the coordinator's files,
  /// or finds those of another save.
  explicit ShardWriter(std::string_view ticket);
  /// Moves the writer.
  ShardWriter(ShardWriter&&) noexcept;
  /// Moves the writer.
  ShardWriter& operator=(ShardWriter&&) noexcept;
  /// Closes the files.
  ~ShardWriter();

  /// How many boxes this rank has, in the order in which they were given to the ShardedWriter.
  std::size_t num_boxes() const noexcept;

  /// Writes the boxes `first`, `first` + 1, ... of this rank: each a tensor, of any strides, of the
  /// box's shape and the tensor's dtype. Boxes may be written in any order, each once. Throws
  /// Error(invalid_argument) if one does not fit, before any of them is written; Error(io).
  void write(std::size_t first, std::span<const Tensor> tensors, Monitor* monitor = nullptr);

  /// Waits until all that was written is on the device (if the save is durable) and returns the
  /// receipt. Throws Error(invalid_argument) naming a tensor if a box was not written.
  std::string finish();

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace tenfold

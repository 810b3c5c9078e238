#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <tenfold/leaf.hpp>

#include "base/fail.hpp"
#include "core/tree/leaf_source.hpp"

namespace tenfold {

/// A box of a tensor, and the leaf of the same shape that stores it.
struct TensorPiece {
  Shape offsets;  ///< index of the box's first element in the tensor
  Leaf leaf;
};

/// The source of a leaf that is stored in pieces: chunks of a large tensor, or shards written by
/// several processes. read() reads only from the pieces that overlap the range. The first call of
/// map() copies all pieces into memory.
class AssembledSource final : public LeafSource {
 public:
  /// Builds the leaf from `pieces`, which must cover each element of `shape` exactly once; pieces
  /// without elements are dropped. `where` names the tensor in messages. A single piece that covers
  /// the whole tensor is returned unchanged, and a shape without elements gives a leaf in memory.
  /// Throws Error(corrupt) if the shape is invalid or too large, or if pieces leave a gap or
  /// overlap. Also throws Error(corrupt) if a piece is nested, does not fit, or has another dtype
  /// or number of dimensions. Throws Error(unsupported) if more than 8 dimensions are sharded or
  /// there are too many pieces.
  static Leaf assemble(DType dtype, Shape shape, std::vector<TensorPiece> pieces,
                       base::Where where);

  std::vector<TensorPiece> pieces() const;

  Buffer map(const Leaf& leaf) override;
  void read(const Leaf& leaf, std::uint64_t offset_bytes, std::span<std::byte> into) override;
  base::Where where(const Leaf& leaf) const override;
  std::vector<Leaf> parts(const Leaf& leaf) const override;
  StoredRange identity(const Leaf& leaf) override;

 private:
  /// A piece as runs of elements that are contiguous in the whole tensor.
  struct Placed {
    TensorPiece piece;
    std::size_t run_dim = 0;  ///< the outermost dimension that is part of a run
    std::uint64_t run_bytes = 0;
    std::uint64_t num_runs = 0;
    std::uint64_t first_byte = 0;  ///< offset of the first run in the whole tensor
  };
  explicit AssembledSource(base::Where where) : where_(std::move(where)) {}

  std::uint64_t run_begin(const Placed& placed, std::uint64_t run) const;
  std::uint64_t first_run_after(const Placed& placed, std::uint64_t byte) const;
  void read_piece(const Placed& placed, std::uint64_t begin, std::span<std::byte> into) const;

  base::Where where_;
  Shape strides_bytes_;  ///< of the whole tensor
  std::vector<Placed> pieces_;
  std::mutex mutex_;
  Buffer copy_;
};

}  // namespace tenfold

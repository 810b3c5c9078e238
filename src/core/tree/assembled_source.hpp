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

/// A box of a tensor and the leaf that holds it, of the box's shape.
struct TensorPiece {
  Shape offsets;  ///< of the box's first element, one a dimension
  Leaf leaf;
};

/// Leaves that are stored in pieces: chunks of a large tensor, shards of one that several processes
/// held. Reading a range touches only the pieces that it meets. Mapping copies all of them into
/// memory, at the first call.
class AssembledSource final : public LeafSource {
 public:
  /// The leaf of `pieces`, which must cover `shape` exactly, each element once; pieces without
  /// elements are left out. `where` names it for messages. A single piece that is everything is
  /// returned as it is. Throws Error(corrupt) if a piece has another dtype or rank or does not fit,
  /// or if they leave a gap or overlap; Error(unsupported) if they cut more than 8 dimensions.
  static Leaf assemble(DType dtype, Shape shape, std::vector<TensorPiece> pieces,
                       base::Where where);

  std::vector<TensorPiece> pieces() const;

  Buffer map(const Leaf& leaf) override;
  void read(const Leaf& leaf, std::uint64_t offset_bytes, std::span<std::byte> into) override;
  void will_need(const Leaf& leaf) override;
  base::Where where(const Leaf& leaf) const override;
  std::vector<Leaf> parts(const Leaf& leaf) const override;
  Identity identity(const Leaf& leaf) override;

 private:
  /// A piece as runs of elements that follow one another in the whole tensor.
  struct Placed {
    TensorPiece piece;
    std::size_t run_dim = 0;  ///< the outermost dimension within a run
    std::uint64_t run_bytes = 0;
    std::uint64_t num_runs = 0;
    std::uint64_t first_byte = 0;  ///< of the first run, in the whole tensor
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

#pragma once

#include <span>
#include <vector>

#include <tenfold/export.hpp>
#include <tenfold/io.hpp>

namespace tenfold {

/// A box (a rectangular part) of a stored tensor, and the tensor that receives it.
struct BoxRead {
  Leaf leaf;           ///< the stored tensor
  Shape offsets;       ///< index of the first element of the box in `leaf`
  Tensor destination;  ///< the caller's tensor: shape of the box, dtype of `leaf`, any strides
};

/// Reads boxes in parallel into the callers' tensors. The rest of a stored tensor is not read,
/// unless the tensor is small, is compressed, or is in Fortran order in an .npz. If a tensor is
/// stored in pieces, only the pieces that overlap the box are read. Throws Error(invalid_argument)
/// before anything is read if a box exceeds its tensor, dtypes differ, a leaf is nested, or a
/// destination is read-only. Also throws what Leaf::read() and Leaf::tensor() throw. `num_threads`
/// 0 means TENFOLD_NUM_THREADS, or min(8, cores).
TENFOLD_API void read_boxes(std::span<const BoxRead> boxes, int num_threads = 0,
                            Monitor* monitor = nullptr);

/// A box of a stored tensor whose bytes are checked.
struct BoxCheck {
  KeyPath path;     ///< path of the tensor
  Shape offsets{};  ///< index of the box's first element in the tensor
  Shape sizes{};    ///< shape of the box
};

/// Compares the checksums of the blocks that the boxes overlap, and of the metadata, in parallel.
/// In formats without checksums of blocks (".tdz", ".npz", ".pt", ".distcp" and others), whole
/// tensors, or whole pieces of tensors, are checked. Damage is reported as by verify(). Throws
/// Error(key_not_found) for a missing tensor, Error(invalid_argument) if a box exceeds its tensor
/// or the entry at BoxCheck::path is not a tensor, and what verify() and open() throw.
TENFOLD_API VerifyReport verify_boxes(const Path& path, std::span<const BoxCheck> boxes,
                                      const VerifyOptions& options = {});

}  // namespace tenfold

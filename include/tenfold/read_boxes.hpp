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

/// Reads boxes in parallel into the callers' tensors, and reads no other bytes. Long runs of bytes
/// are read by pread, directly into a contiguous destination; short runs are copied from a mapping.
/// If a tensor is stored in pieces, only the pieces that overlap the box are read. Throws
/// Error(invalid_argument) before anything is read if a box exceeds its tensor, dtypes differ, a
/// leaf is nested, or a destination is read-only; Error(corrupt) and Error(io) as Leaf::read() and
/// Leaf::tensor() do. `num_threads` 0 means TENFOLD_NUM_THREADS, or min(8, cores).
TENFOLD_API void read_boxes(std::span<const BoxRead> boxes, int num_threads = 0,
                            Monitor* monitor = nullptr);

}  // namespace tenfold

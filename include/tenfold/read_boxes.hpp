#pragma once

#include <span>
#include <vector>

#include <tenfold/export.hpp>
#include <tenfold/io.hpp>

namespace tenfold {

/// A box of a stored tensor, and its destination.
struct BoxRead {
  Leaf leaf;      ///< the tensor
  Shape offsets;  ///< of the box in the leaf; it has the shape of `into`
  Tensor into;    ///< of the leaf's dtype, with any strides
};

/// Reads boxes in parallel, and only their bytes: long runs by pread, directly into `into` where
/// that is contiguous, short ones from a mapping. Of a tensor that is stored in pieces, reads only
/// the pieces that overlap the box. Throws Error(invalid_argument) before anything is read if a box
/// exceeds its tensor, or dtypes differ; Error(corrupt), Error(io) as Leaf::read() and
/// Leaf::tensor(). `num_threads` 0: min(8, cores).
TENFOLD_API void read_boxes(std::span<const BoxRead> boxes, int num_threads = 0,
                            Monitor* monitor = nullptr);

}  // namespace tenfold

#pragma once

#include <span>
#include <vector>

#include <tenfold/export.hpp>
#include <tenfold/io.hpp>

namespace tenfold {

/// A box of a tensor that is stored, and where it goes.
struct BoxRead {
  Leaf leaf;      ///< the tensor
  Shape offsets;  ///< of the box in the leaf; it has the shape of `into`
  Tensor into;    ///< of the leaf's dtype, with any strides
};

/// Reads boxes in parallel, and of the files only what lies in them: long runs of bytes by pread,
/// straight into `into` where that is contiguous, short ones out of the mapped file. Of a tensor
/// that is stored in pieces, only the pieces that the box meets are read. Throws
/// Error(invalid_argument) before anything is read if a box does not lie in its tensor, or dtypes
/// differ; Error(corrupt), Error(io) as Leaf::read() and Leaf::tensor().
/// `num_threads` 0: min(8, cores).
TENFOLD_API void read_boxes(std::span<const BoxRead> boxes, int num_threads = 0,
                            Monitor* monitor = nullptr);

}  // namespace tenfold

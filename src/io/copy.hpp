#pragma once

#include <vector>

#include <tenfold/io.hpp>

namespace tenfold {

/// A tensor to copy: all of `from`, in row-major order, to `to`, which has the same shape.
struct LeafCopy {
  Leaf from;
  Tensor to;
};

/// Copies in parallel, directly from the file if the leaf is on disk. Dtypes may differ. If targets
/// share bytes, the result is the same as copying sequentially. Extra memory for casts and strided
/// targets: at most two buffers of 1 MiB per thread.
void copy_leaves(const std::vector<LeafCopy>& copies, int num_threads, Monitor* monitor);

}  // namespace tenfold

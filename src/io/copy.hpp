#pragma once

#include <vector>

#include <tenfold/io.hpp>

namespace tenfold {

/// One tensor to be copied: all of `from`, in row-major order, into `to` of the same shape.
struct LeafCopy {
  Leaf from;
  Tensor to;
};

/// Copies in parallel, straight from the file where the leaf is on disk. Dtypes may differ. Where
/// targets share bytes the result is that of copying one after the other.
/// Extra memory: at most one scratch piece a thread, for casts and strided targets.
void copy_leaves(const std::vector<LeafCopy>& copies, int num_threads, Monitor* monitor);

}  // namespace tenfold

#pragma once

#include <tenfold/io.hpp>

namespace tenfold {

// tensordict's consolidated files: all tensors end to end, and one document that says where each
// lies. save(tree, path, {.format = "consolidated"}) writes them, too, and adds where tensordict
// does not look what it would lose: the order and kinds of entries, ties, checksums.

struct ConsolidateOptions {
  int num_threads = 0;
  bool durable = false;  ///< on the device when the call returns
  bool locked = false;   ///< the tree is, and is again when tensordict reads the file
  Monitor* monitor = nullptr;
};

/// Writes what tensordict's `consolidate(filename)` writes, byte for byte, in the place of what is
/// at `path`, atomically. Two differences: before a complex128 that tensordict would place where it
/// cannot look at it there is a gap of 8 bytes, and a lazy stack of one tensorclass is stored as a
/// stack of that class, which tensordict reads, rather than as one that it does not.
/// Throws Error(unsupported) naming the key of what tensordict could not read back, before anything
/// is written.
TENFOLD_API void consolidate(const TensorDict& tree, const Path& path,
                             const ConsolidateOptions& options = {});

/// Opens such a file as open() does, and tells whether its tree was locked.
TENFOLD_API TensorDict open_consolidated(const Path& path, bool& locked);

}  // namespace tenfold

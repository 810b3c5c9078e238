#pragma once

#include <tenfold/io.hpp>

namespace tenfold {

// tensordict's consolidated files: all tensors concatenated, and one document with their offsets.
// save(tree, path, {.format = "consolidated"}) writes them, too, and adds members to the document:
// the order and kinds of entries, shared storage, and checksums. tensordict skips these members.

/// Options of consolidate().
struct ConsolidateOptions {
  int num_threads = 0;   ///< 0: TENFOLD_NUM_THREADS, or min(8, cores)
  bool durable = false;  ///< fsync the files before the call returns
  bool locked = false;   ///< record the tree as locked, so that tensordict locks it after reading
  Monitor* monitor = nullptr;  ///< observes the call
};

/// Saves a tree as a consolidated file and replaces `path` atomically. The bytes are those of
/// tensordict's `consolidate(filename)`, with two exceptions. First, a gap of 8 bytes precedes a
/// complex128 tensor that tensordict would place at an offset at which it cannot view the tensor.
/// Second, a lazy stack of tensorclass nodes is stored as a stack that tensordict can read;
/// tensordict cannot read the stack that it writes itself. Before anything is written, throws
/// Error(unsupported), naming the key, for entries that tensordict could not read back.
TENFOLD_API void consolidate(const TensorDict& tree, const Path& path,
                             const ConsolidateOptions& options = {});

/// The result of open_consolidated().
struct ConsolidatedTree {
  TensorDict tree;      ///< the tree, as open() returns it
  bool locked = false;  ///< the file records that the tree is locked
};

/// Opens a consolidated file as open() does.
TENFOLD_API ConsolidatedTree open_consolidated(const Path& path);

}  // namespace tenfold

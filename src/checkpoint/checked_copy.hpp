#pragma once

#include <string>

#include <tenfold/checkpoint_manager.hpp>

namespace tenfold::checkpoint {

/// Copies an entry, or the selected part of it, into memory. If `compares`, also compares each
/// block with its checksum, in the same pass. The caller must have checked the rest of the entry's
/// files with CheckpointCheck::structure. Throws Error(corrupt) naming the tensor and the block.
TensorDict::Item copy_entry(const TensorDict::Item& item, const Path& step_path,
                            const CheckpointEntry& entry, bool compares, int num_threads,
                            Monitor* monitor);

}  // namespace tenfold::checkpoint

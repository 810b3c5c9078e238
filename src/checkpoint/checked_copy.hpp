#pragma once

#include <string>

#include <tenfold/checkpoint_manager.hpp>

namespace tenfold::checkpoint {

/// Copies an entry, or the selected part of it, into memory. With `compares` each block is compared
/// with its checksum in the same pass; for entries whose files were checked, but for the bytes of
/// their tensors: CheckpointCheck::structure. Throws Error(corrupt) naming the tensor and the
/// block.
TensorDict::Item copy_entry(const TensorDict::Item& item, const Path& step_path,
                            const CheckpointEntry& entry, bool compares, int num_threads,
                            Monitor* monitor);

}  // namespace tenfold::checkpoint

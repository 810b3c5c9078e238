#pragma once

#include <string>

#include <tenfold/checkpoint_manager.hpp>

namespace tenfold::checkpoint {

/// Copies the tensors of `item`, which is `entry` or a selected part of it, into memory. If
/// `compares` is true, also compares the tensors of a safetensors or memmap entry with the stored
/// checksums. This is done block by block during the copy, or in a separate pass if several
/// processes wrote the entry. The caller must have checked the entry with
/// CheckpointCheck::structure, which covers all bytes of the other formats. Throws Error(corrupt),
/// naming the tensor or its file, if a checksum is missing or differs.
TensorDict::Item copy_entry(const TensorDict::Item& item, const Path& step_path,
                            const CheckpointEntry& entry, bool compares, int num_threads,
                            Monitor* monitor);

}  // namespace tenfold::checkpoint

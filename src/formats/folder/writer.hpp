#pragma once

#include <cstdint>

#include "formats/folder/plan.hpp"
#include "formats/format.hpp"
#include "os/fs/directory.hpp"

namespace tenfold::detail::formats::folder {

/// Creates the planned sub-folders and files in the empty folder `root`, and `%checksums` if
/// requested. With request.durable, all files and sub-folders are fsynced afterwards, but not
/// `root`. At most 64 files, or os::num_files_to_keep_open() if that is more, are open at a time,
/// so the number of leaves is not limited. Throws Error(io), and what reading the leaves throws.
void write_plan(const Plan& plan, os::Directory& root, const WriteRequest& request);

/// Warns if tensordict cannot load a tensor of the plan from a folder. The warning names one such
/// tensor.
void warn_of_unloadable(const Plan& plan, const Path& path);

/// Returns the total size of the tensors that write_plan() writes or reserves space for, without
/// aliases. Returns 0 for zeros without reserved space, although write_plan() then still writes the
/// sizes of nested tensors.
std::uint64_t written_bytes(const Plan& plan, const WriteRequest& request) noexcept;

}  // namespace tenfold::detail::formats::folder

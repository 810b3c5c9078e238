#pragma once

#include <cstdint>

#include "formats/folder/plan.hpp"
#include "formats/format.hpp"
#include "os/fs/directory.hpp"

namespace tenfold::detail::formats::folder {

/// Makes what the plan says in the empty folder `root`: sub-folders, files, and `%checksums` if
/// they are asked for. With request.durable everything but `root` itself is on the device
/// afterwards. Files are open only while they are written, so any number of leaves will do.
void write_plan(const Plan& plan, os::Directory& root, const WriteRequest& request);

/// Warns, naming the tensor, if tensordict cannot load one of them from a folder.
void warn_of_unloadable(const Plan& plan, const Path& path);

/// The bytes of tensors that write_plan() writes or reserves: none of holes and of tied tensors.
std::uint64_t written_bytes(const Plan& plan, const WriteRequest& request) noexcept;

}  // namespace tenfold::detail::formats::folder

#pragma once

#include <cstdint>
#include <vector>

#include <tenfold/io.hpp>

#include "formats/folder/plan.hpp"
#include "formats/format.hpp"
#include "formats/shared/zip_archive.hpp"

namespace tenfold::detail::formats::folder {

/// tensordict's and torch's: every dtype may begin there, and no two tensors share a cache line.
inline constexpr std::uint32_t kArchiveAlignment = 64;

/// Replaces the file at `path` by an archive of the files of a plan, in tensordict's order: in each
/// folder meta.json first, then the other files and then the sub-folders by name; tensors at
/// multiples of 64, and deflated with a `deflate_level` above 0. Tied tensors are copies, as an
/// archive has no links. Throws Error(io, EBUSY) if somebody writes through the archive that is
/// there.
void save_archive(Plan plan, const Path& path, const WriteRequest& request, int deflate_level = 0);

/// The same with entries that are made already.
void save_entries(const std::vector<ZipArchiveEntry>& entries, const Path& path,
                  const WriteRequest& request);

}  // namespace tenfold::detail::formats::folder

#pragma once

#include <cstdint>
#include <vector>

#include <tenfold/io.hpp>

#include "formats/folder/plan.hpp"
#include "formats/format.hpp"
#include "formats/shared/zip_archive.hpp"

namespace tenfold::detail::formats::folder {

/// Alignment of stored tensors in bytes, as in tensordict and torch: sufficient for every dtype,
/// and no two tensors share a cache line.
inline constexpr std::uint32_t kArchiveAlignment = 64;

/// Replaces the file at `path` by an archive of the files of a plan, in tensordict's order: in each
/// folder meta.json first, then the other files by name, then the sub-folders by name. Tensors that
/// are not deflated are aligned to 64 bytes. With a `deflate_level` above 0, tensors that become
/// smaller are deflated, except those that are written as zeros. Aliases are stored as copies,
/// because an archive has no links. Throws Error(io) (EBUSY) if the existing archive is open in
/// mode write_through or locked by another save.
void save_archive(Plan plan, const Path& path, const WriteRequest& request, int deflate_level = 0);

/// Like save_archive(), for prepared entries, which are written in the given order.
void save_entries(const std::vector<ZipArchiveEntry>& entries, const Path& path,
                  const WriteRequest& request);

}  // namespace tenfold::detail::formats::folder

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <tenfold/dataset.hpp>
#include <tenfold/io.hpp>

#include "formats/shared/parts_manifest.hpp"
#include "os/fs/directory.hpp"
#include "os/fs/lease.hpp"

namespace tenfold {

/// XXH3 of the `%checksums` file of a part; nullopt if the part has no such file.
std::optional<std::uint64_t> checksum_of_part(const os::Directory& part);

/// Acquires the lease for changing `%parts.json`. If another writer holds the lease, throws
/// Error(io) (EBUSY) that names this writer.
os::Lease lease_parts(const os::Directory& folder, const Path& path);

/// Returns the manifest entry of the part at `part_path` below `path`, after checking its columns,
/// rows and file sizes. Seals the part if its writer did not close it. Throws Error(corrupt) if a
/// check fails, and Error(file_not_found) if the part is missing. Throws Error(invalid_argument) if
/// the part is not a data set in one folder or is a circular buffer, and Error(io) (EBUSY) if
/// another writer is appending to it.
detail::formats::PartEntry entry_of_part(const os::Directory& folder, const Path& path,
                                         const std::string& part_path, const Schema& schema);

/// The schema of the part at `part_path`. Throws Error(file_not_found) if the part is missing,
/// Error(invalid_argument) if it is not a data set in one folder, and the errors of Schema::of().
Schema schema_of_part(const os::Directory& folder, const Path& path, const std::string& part_path);

/// Replaces the manifest atomically. Throws Error(io) (EBUSY) if the lease was lost,
/// Error(unsupported) if the manifest is longer than kMaxPartsBytes.
void publish_parts(const detail::formats::PartsManifest& manifest, const os::Lease& lease,
                   const Path& path, bool durable);

}  // namespace tenfold

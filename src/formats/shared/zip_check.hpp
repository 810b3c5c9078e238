#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <tenfold/io.hpp>

#include "base/fail.hpp"
#include "codecs/zip/zip.hpp"
#include "formats/shared/progress.hpp"
#include "os/fs/file.hpp"

namespace tenfold::detail::formats {

/// Returns the CRC-32s of the bytes of stored (uncompressed) entries, in the order of `entries`.
/// Blocks of 16 MiB are distributed over the threads, each of which needs at most 1 MiB of memory.
/// Holes, if the file system reports them (os/fs/holes.hpp), are not read. Counts bytes as
/// progress. Throws Error(corrupt) if the file is too short, and Error(io).
std::vector<std::uint32_t> stored_crc32s(const os::File& file,
                                         std::span<const codecs::ZipEntry* const> entries,
                                         int num_threads, Progress& progress);

/// Functions that verify_zip() calls for the entries of an archive.
struct ZipUse {
  std::function<base::Where(const codecs::ZipEntry&)> where;  ///< names an entry in problems
  std::function<bool(const codecs::ZipEntry&)> is_wanted;     ///< true for entries to be checked
  /// If not empty, called for each wanted entry whose CRC-32 is right.
  std::function<void(const codecs::ZipEntry&)> use{};
};

/// Verifies the structure of an archive and the CRC-32s of the wanted entries, and calls
/// entries.use(). Adds the number of wanted entries to report.num_checksums, and all problems,
/// including errors of entries.use(), to the report. Throws any error for which
/// is_problem_of_files() is false.
///
/// Distributes blocks of 16 MiB of stored entries over the threads, and reads holes, too. One
/// thread inflates a whole deflated entry. Calls input.read from several threads. Counts the bytes
/// that the wanted entries have in the archive, deflated or stored, as progress.
void verify_zip(const codecs::ZipInput& input, const codecs::ZipDirectory& directory,
                const ZipUse& entries, int num_threads, Progress& progress, VerifyReport& report);

}  // namespace tenfold::detail::formats

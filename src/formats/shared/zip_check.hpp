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

/// Computes the CRC-32s of stored (uncompressed) entries, in order. Blocks of 16 MiB are
/// distributed over the threads, each of which needs at most 1 MiB of memory. Holes, if the file
/// system reports them (os/fs/holes.hpp), are not read. Counts bytes as progress. Throws if a read
/// fails.
std::vector<std::uint32_t> stored_crc32s(const os::File& file,
                                         std::span<const codecs::ZipEntry* const> entries,
                                         int num_threads, Progress& progress);

/// Describes the entries of an archive for verify_zip().
struct ZipUse {
  std::function<base::Where(const codecs::ZipEntry&)> where;
  std::function<bool(const codecs::ZipEntry&)> is_wanted;  ///< true for entries to be checked
  std::function<void(const codecs::ZipEntry&)> use{};      ///< if not empty, called if the CRC-32
                                                           ///< is right
};

/// Verifies the structure of an archive and the CRC-32s of the wanted entries, and calls
/// entries.use() for each wanted entry with the right CRC-32. Adds the number of wanted entries to
/// report.num_checksums, and all problems, including errors of entries.use(), to the report. Throws
/// an error for which is_problem_of_files() is false. The blocks of stored entries are distributed
/// over the threads as in stored_crc32s(), but holes are read too. One thread inflates a whole
/// deflated entry. input.read is called from several threads. Counts stored bytes as progress.
void verify_zip(const codecs::ZipInput& input, const codecs::ZipDirectory& directory,
                const ZipUse& entries, int num_threads, Progress& progress, VerifyReport& report);

}  // namespace tenfold::detail::formats

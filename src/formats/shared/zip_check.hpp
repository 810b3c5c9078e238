#pragma once

#include <cstdint>
#include <exception>
#include <span>
#include <vector>

#include "codecs/zip/zip.hpp"
#include "formats/shared/progress.hpp"
#include "os/fs/file.hpp"

namespace tenfold::detail::formats {

/// Returns the CRC-32s of the bytes of stored entries, in order. Blocks of 16 MiB are distributed
/// over the threads, each of which needs 1 MiB of memory. Holes, if the file system reports them
/// (os/fs/holes.hpp), are not read. Counts bytes as progress. Throws the errors of reading.
std::vector<std::uint32_t> stored_crc32s(const os::File& file,
                                         std::span<const codecs::ZipEntry* const> entries,
                                         int num_threads, Progress& progress);

/// Returns the exception of codecs::check_zip_entry() for each of the entries; null for valid ones.
/// The blocks of stored entries are distributed as above, but holes are read too. One thread
/// inflates a whole deflated entry. `read` of the input is called from several threads. Counts
/// stored bytes as progress.
std::vector<std::exception_ptr> check_zip_entries(const codecs::ZipInput& input,
                                                  std::span<const codecs::ZipEntry* const> entries,
                                                  int num_threads, Progress& progress);

}  // namespace tenfold::detail::formats

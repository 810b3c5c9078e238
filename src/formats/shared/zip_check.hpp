#pragma once

#include <cstdint>
#include <exception>
#include <span>
#include <vector>

#include "codecs/zip/zip.hpp"
#include "formats/shared/progress.hpp"
#include "os/fs/file.hpp"

namespace tenfold::detail::formats {

/// CRC-32s of the bytes of stored entries, in their order. Threads share blocks of 16 MiB, each
/// with 1 MiB of memory. Holes, where the file tells of them (os/fs/holes.hpp), are not read.
/// Counts bytes as progress. Throws what reading throws.
std::vector<std::uint32_t> stored_crc32s(const os::File& file,
                                         std::span<const codecs::ZipEntry* const> entries,
                                         int num_threads, Progress& progress);

/// What codecs::check_zip_entry throws for each of the entries; null for those that are right. The
/// blocks of stored ones are shared by threads, as above, but all is read; a deflated one is
/// inflated whole. Its `read` is called from several threads. Counts stored bytes as progress.
std::vector<std::exception_ptr> check_zip_entries(const codecs::ZipInput& input,
                                                  std::span<const codecs::ZipEntry* const> entries,
                                                  int num_threads, Progress& progress);

}  // namespace tenfold::detail::formats

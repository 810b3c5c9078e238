#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <tenfold/leaf.hpp>

#include "codecs/zip/writer.hpp"
#include "formats/format.hpp"
#include "formats/shared/progress.hpp"
#include "os/fs/file.hpp"

namespace tenfold::detail::formats {

/// An entry of an archive to be written.
struct ZipArchiveEntry {
  std::string name;
  std::string head;              ///< its first bytes, for example an .npy header
  std::optional<Leaf> leaf;      ///< the leaf whose bytes follow; empty if there is none
  std::uint32_t alignment = 1;   ///< of a stored entry's first byte in the file: a power of two
  std::uint64_t zero_bytes = 0;  ///< number of zeros instead of a leaf; a hole in the file
  int deflate_level = 0;  ///< 0: store; 1 to codecs::kMaxDeflateLevel: deflate if that makes the
                          ///< entry smaller
  std::string comment{};  ///< comment of the entry in the central header
};

/// Writes a whole archive to the empty `file`, with the CRC-32s of the entries in the local and
/// central headers. Counts the bytes of the leaves as progress. Uses num_threads of the request
/// and, if `durable` is set, starts writeback early; the caller syncs and publishes the file.
/// Throws like the constructor of codecs::ZipLayout before anything is written, and like
/// codecs::ZipLayout::directory() at the end.
void write_zip_archive(os::File& file, const std::vector<ZipArchiveEntry>& entries,
                       const WriteRequest& request, Progress& progress);

}  // namespace tenfold::detail::formats

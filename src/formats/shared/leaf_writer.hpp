#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <tenfold/leaf.hpp>

#include "formats/shared/progress.hpp"
#include "os/fs/file.hpp"

namespace tenfold::detail::formats {

/// What is computed of each 16 MiB block of a leaf while it is written.
enum class BlockChecksum : std::uint8_t { none, xxh3, crc32 };

/// As formats are asked for their own checksums.
constexpr BlockChecksum xxh3_if(bool wanted) {
  return wanted ? BlockChecksum::xxh3 : BlockChecksum::none;
}

/// One run of a leaf's bytes to be written to a file.
struct LeafWrite {
  const Leaf* leaf = nullptr;
  os::File* file = nullptr;  ///< open while written
  std::uint64_t file_offset_bytes = 0;
  std::uint64_t size_bytes = 0;                ///< of what is written: mostly the whole leaf
  std::vector<std::uint64_t> block_checksums;  ///< out: of each 16 MiB block, if asked for
  /// Makes bytes that depend on the checksums and end where the leaf's begin (a zip entry's
  /// header); empty for none. Is called once, on any thread, when block_checksums is whole.
  std::function<std::string(const LeafWrite&)> head = {};
  /// Where in the leaf's contiguous bytes what is written begins; a multiple of the itemsize.
  std::uint64_t leaf_offset_bytes = 0;
};

/// Writes all leaves in parallel, block by block, checksumming each piece while it is in cache.
/// With `will_sync` the device begins with each 16 MiB while the next ones are written.
/// Extra memory: two pieces of 2 MiB a thread.
void write_leaves(std::vector<LeafWrite>& writes, BlockChecksum checksum, int num_threads,
                  Progress& progress, bool will_sync = false);

/// A leaf beside the checksums that were stored of an earlier version of it.
struct LeafComparison {
  const Leaf* leaf = nullptr;
  std::vector<std::uint64_t> stored;  ///< XXH3 of each 16 MiB block: as many as the leaf has
  bool is_equal = true;               ///< out
};

enum class CompareUntil : std::uint8_t {
  each_is_known,    ///< of every leaf whether it is equal
  one_is_different  ///< then all that follow count as different
};

/// Compares leaves with stored checksums, each up to its first block that differs.
void compare_with_checksums(std::vector<LeafComparison>& leaves, CompareUntil until,
                            int num_threads, Progress& progress);

/// One stored block to check.
struct BlockCheck {
  const os::File* file = nullptr;
  std::uint64_t offset_bytes = 0;
  std::uint64_t size_bytes = 0;
  std::uint64_t expected = 0;
  std::string part;  ///< for the report
};

/// XXH3 of [offset_bytes, +size_bytes) of a file, by pread through a scratch buffer.
std::uint64_t checksum_of(const os::File& file, std::uint64_t offset_bytes,
                          std::uint64_t size_bytes, Progress* progress);

/// Checks blocks in parallel; returns those that differ or cannot be read, in order.
std::vector<Problem> check_blocks(const std::vector<BlockCheck>& blocks, int num_threads,
                                  Progress& progress);

}  // namespace tenfold::detail::formats

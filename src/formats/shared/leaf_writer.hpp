#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <tenfold/leaf.hpp>

#include "base/hash/checksum.hpp"
#include "formats/shared/progress.hpp"
#include "os/fs/file.hpp"

namespace tenfold::detail::formats {

/// The kind of checksum that is computed for each 16 MiB block while a leaf is written.
enum class BlockChecksum : std::uint8_t { none, xxh3, crc32 };

/// Returns xxh3 if checksums are `wanted`, else none. For formats without CRC-32s.
constexpr BlockChecksum xxh3_if(bool wanted) {
  return wanted ? BlockChecksum::xxh3 : BlockChecksum::none;
}

/// The checksum of `size_bytes` bytes that arrive in pieces. For XXH3, uses the faster one-shot
/// function if there is only one piece.
class PieceChecksum {
 public:
  PieceChecksum(BlockChecksum kind, std::uint64_t size_bytes)
      : kind_(kind), size_bytes_(size_bytes) {}

  void update(std::span<const std::byte> piece);
  /// The checksum, after all pieces; 0 for BlockChecksum::none.
  std::uint64_t value() const { return stream_ ? stream_->digest() : value_; }

 private:
  BlockChecksum kind_;
  std::uint64_t size_bytes_;
  std::uint64_t value_ = 0;
  std::optional<base::Xxh3Stream> stream_;
};

/// A run of a leaf's bytes to write to a file.
struct LeafWrite {
  const Leaf* leaf = nullptr;
  os::File* file = nullptr;                    ///< open during the write
  std::uint64_t file_offset_bytes = 0;         ///< offset of the run in the file
  std::uint64_t size_bytes = 0;                ///< size of the run, usually of the whole leaf
  std::vector<std::uint64_t> block_checksums;  ///< output: one per 16 MiB block, if requested
  /// Returns bytes that depend on the checksums and are written directly before the leaf's bytes (a
  /// zip entry's header). Called once, on any thread, after block_checksums is complete. Empty: no
  /// bytes are written before the leaf's bytes.
  std::function<std::string(const LeafWrite&)> head = {};
  /// Offset of the run in the leaf's contiguous bytes; a multiple of the itemsize, and 0 with a
  /// `head`.
  std::uint64_t leaf_offset_bytes = 0;
};

/// Writes all runs in parallel, and sets their block_checksums. Usually a thread hashes each piece
/// and then writes it at once, while the piece is in the CPU cache. If all leaves are contiguous in
/// memory and there are fewer files than threads, one thread writes each file, and the threads
/// without a file compute most of the checksums.
/// With `will_sync`, starts writeback after every 16 MiB. Needs at most two pieces of 2 MiB of
/// memory per thread. Throws what reading the leaves, writing the files and `progress` throw.
void write_leaves(std::vector<LeafWrite>& writes, BlockChecksum checksum, int num_threads,
                  Progress& progress, bool will_sync = false);

/// A leaf, and the stored checksums of an earlier version of it.
struct LeafComparison {
  const Leaf* leaf = nullptr;
  std::vector<std::uint64_t> stored;  ///< XXH3 of each 16 MiB block of the leaf
  bool is_equal = true;               ///< output: the leaf has the stored checksums
};

/// When compare_with_checksums() stops.
enum class CompareUntil : std::uint8_t {
  each_is_known,    ///< once each leaf is known to be equal or different
  first_difference  ///< at the first difference: then no leaf counts as equal
};

/// Compares leaves with stored checksums in parallel, and sets LeafComparison::is_equal.
void compare_with_checksums(std::vector<LeafComparison>& leaves, CompareUntil until,
                            int num_threads, Progress& progress);

/// One stored block to check.
struct BlockCheck {
  const os::File* file = nullptr;
  std::uint64_t offset_bytes = 0;
  std::uint64_t size_bytes = 0;
  std::uint64_t expected = 0;  ///< the stored XXH3
  std::string part;            ///< names the block in problems
};

/// Returns the XXH3 of `size_bytes` bytes of a file, from `offset_bytes`, read through a scratch
/// buffer. `progress` may be null.
std::uint64_t checksum_of(const os::File& file, std::uint64_t offset_bytes,
                          std::uint64_t size_bytes, Progress* progress);

/// Compares blocks with their checksums in parallel. Returns a problem for each block that differs
/// or cannot be read, in the order of `blocks`. Throws any error for which is_problem_of_files() is
/// false.
std::vector<Problem> check_blocks(const std::vector<BlockCheck>& blocks, int num_threads,
                                  Progress& progress);

}  // namespace tenfold::detail::formats

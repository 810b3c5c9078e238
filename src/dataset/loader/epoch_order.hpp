#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>

#include <tenfold/permutation.hpp>

namespace tenfold {

/// The order of an epoch over the positions [0, size) of a data set.
///
/// shuffled_in_blocks() shuffles the blocks of `block_rows` rows, and then the rows within each
/// window of kWindowBlocks consecutive shuffled blocks. Rows after the last whole block come last,
/// shuffled among themselves.
///
/// Thread safety: all const members may be called from any thread.
class EpochOrder {
 public:
  static constexpr std::int64_t kWindowBlocks = 64;

  static EpochOrder sequential(std::int64_t size);
  static EpochOrder shuffled(std::int64_t size, std::uint64_t seed, std::uint64_t epoch);
  static EpochOrder shuffled_in_blocks(std::int64_t size, std::uint64_t seed, std::uint64_t epoch,
                                       std::int64_t block_rows);

  std::int64_t size() const noexcept { return size_; }
  /// The number of rows of a full window; 0 unless shuffled in blocks.
  std::int64_t window_rows() const noexcept {
    return std::min(kWindowBlocks, num_blocks_) * block_rows_;
  }
  /// Writes elements [begin, begin + positions.size()) of the order to `positions`. This range must
  /// be within [0, size()).
  void fill(std::int64_t begin, std::span<std::int64_t> positions) const;

 private:
  explicit EpochOrder(std::int64_t size) : size_(size) {}
  /// Replaces indices within the window that begins with shuffled block `first_block` by positions
  /// of the data set.
  void map_blocks(std::int64_t first_block, std::span<std::int64_t> positions) const;

  std::int64_t size_;
  std::int64_t block_rows_ = 0;
  std::int64_t num_blocks_ = 0;  ///< number of whole blocks
  std::uint64_t seed_ = 0;
  std::uint64_t epoch_ = 0;
  /// Permutation of the rows or, if shuffled in blocks, of the blocks.
  std::optional<Permutation> permutation_;
};

}  // namespace tenfold

#include "dataset/loader/epoch_order.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

namespace tenfold {
namespace {

/// XORed with the seed, so that rows in a window are shuffled independently of the blocks.
constexpr std::uint64_t kWindowSalt = 0xA0761D6478BD642F;

}  // namespace

EpochOrder EpochOrder::sequential(std::int64_t size) { return EpochOrder(size); }

EpochOrder EpochOrder::shuffled(std::int64_t size, std::uint64_t seed, std::uint64_t epoch) {
  EpochOrder order(size);
  order.permutation_.emplace(size, seed, epoch);
  return order;
}

EpochOrder EpochOrder::shuffled_in_blocks(std::int64_t size, std::uint64_t seed,
                                          std::uint64_t epoch, std::int64_t block_rows) {
  EpochOrder order(size);
  // Reduce a block size greater than `size` to `size`: the order is the same, and the window size
  // does not overflow.
  order.block_rows_ = std::clamp<std::int64_t>(size, 1, block_rows);
  order.num_blocks_ = size / order.block_rows_;
  order.seed_ = seed;
  order.epoch_ = epoch;
  order.permutation_.emplace(order.num_blocks_, seed, epoch);
  return order;
}

void EpochOrder::fill(std::int64_t begin, std::span<std::int64_t> positions) const {
  if (!permutation_) {
    std::iota(positions.begin(), positions.end(), begin);
    return;
  }
  if (block_rows_ == 0) {
    permutation_->fill(begin, positions);
    return;
  }
  const std::int64_t window_rows = kWindowBlocks * block_rows_;
  const std::int64_t whole_rows = num_blocks_ * block_rows_;
  for (std::size_t done = 0; done < positions.size();) {
    const std::int64_t at = begin + static_cast<std::int64_t>(done);
    // Rows after the last whole block are a separate window.
    const std::int64_t window =
        at < whole_rows ? at / window_rows : (whole_rows + window_rows - 1) / window_rows;
    const std::int64_t first = at < whole_rows ? window * window_rows : whole_rows;
    const std::int64_t last = at < whole_rows ? std::min(first + window_rows, whole_rows) : size_;
    const auto count = std::min(positions.size() - done, static_cast<std::size_t>(last - at));
    fill_window(window, at - first, positions.subspan(done, count));
    done += count;
  }
}

void EpochOrder::fill_window(std::int64_t window, std::int64_t inside,
                             std::span<std::int64_t> positions) const {
  const std::int64_t window_rows = kWindowBlocks * block_rows_;
  const std::int64_t whole_rows = num_blocks_ * block_rows_;
  const std::int64_t first = std::min(window * window_rows, whole_rows);
  const bool is_tail = first == whole_rows;
  const std::int64_t rows =
      is_tail ? size_ - whole_rows : std::min(window_rows, whole_rows - first);
  const Permutation within(rows, seed_ ^ kWindowSalt,
                           epoch_ ^ (static_cast<std::uint64_t>(window) << 32U));
  within.fill(inside, positions);
  if (is_tail) {
    for (std::int64_t& position : positions) position += whole_rows;
    return;
  }
  std::vector<std::int64_t> blocks(positions.begin(), positions.end());
  for (std::int64_t& block : blocks) block = first / block_rows_ + block / block_rows_;
  permutation_->map(blocks);
  for (std::size_t i = 0; i < positions.size(); ++i) {
    positions[i] = blocks[i] * block_rows_ + positions[i] % block_rows_;
  }
}

}  // namespace tenfold

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
  // Reduce a block size greater than `size` to `size`: the order is the same.
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
  const std::int64_t window_rows = this->window_rows();
  const std::int64_t whole_rows = num_blocks_ * block_rows_;
  for (std::size_t done = 0; done < positions.size();) {
    const std::int64_t at = begin + static_cast<std::int64_t>(done);
    // Rows after the last whole block are a separate window. The sums below cannot overflow,
    // because none exceeds `size_`.
    const bool is_tail = at >= whole_rows;
    const std::int64_t window = is_tail ? (whole_rows - 1) / window_rows + 1 : at / window_rows;
    const std::int64_t first = is_tail ? whole_rows : window * window_rows;
    const std::int64_t rows = is_tail ? size_ - first : std::min(window_rows, whole_rows - first);
    const auto count =
        std::min(positions.size() - done, static_cast<std::size_t>(first + rows - at));
    const auto some = positions.subspan(done, count);
    const Permutation within(rows, seed_ ^ kWindowSalt,
                             epoch_ ^ (static_cast<std::uint64_t>(window) << 32U));
    within.fill(at - first, some);
    if (is_tail) {
      for (std::int64_t& position : some) position += whole_rows;
    } else {
      map_blocks(first / block_rows_, some);
    }
    done += count;
  }
}

void EpochOrder::map_blocks(std::int64_t first_block, std::span<std::int64_t> positions) const {
  std::vector<std::int64_t> blocks(positions.begin(), positions.end());
  for (std::int64_t& block : blocks) block = first_block + block / block_rows_;
  permutation_->map(blocks);
  for (std::size_t i = 0; i < positions.size(); ++i) {
    positions[i] = blocks[i] * block_rows_ + positions[i] % block_rows_;
  }
}

}  // namespace tenfold

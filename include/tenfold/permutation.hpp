#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <tenfold/error.hpp>
#include <tenfold/export.hpp>

namespace tenfold {

namespace detail {

/// The Feistel network of a Permutation: the widths of its halves in bits, and its round keys.
struct PermutationNetwork {
  static constexpr std::size_t kRounds = 8;
  unsigned low_bits = 5;
  unsigned high_bits = 5;
  /// 1: swaps the results 0 and 1; 0: does not. Without the swap, the rounds give even permutations
  /// only.
  std::uint64_t swap = 0;
  std::array<std::uint64_t, kRounds> keys{};
};

}  // namespace detail

/// A pseudorandom permutation of the rows [0, size), with random access. Its elements are computed
/// on demand, not stored. `(seed, epoch, size)` determines the order, on every machine and in every
/// version.
///
///     Permutation order(ds.size(), 7, 0);
///     order[0];                  // the first row
///     order.fill(512, batch);    // the rows at the positions 512, 513, ...
///
/// The order is a Feistel network over the smallest power of two that is at least `size` and 1024
/// (M. Luby and C. Rackoff, "How to construct pseudorandom permutations", 1988). Its halves have
/// unequal widths if necessary. Values outside of [0, size) are mapped again by cycle walking (J.
/// Black and P. Rogaway, "Ciphers with arbitrary finite domains", 2002). The order is not
/// cryptographically secure.
///
/// Thread safety: all members may be called from any thread.
class TENFOLD_API Permutation {
 public:
  /// Creates the permutation of this size, seed and epoch. Throws Error(invalid_argument) for a
  /// size below 0 or above 2^62.
  explicit Permutation(std::int64_t size, std::uint64_t seed = 0, std::uint64_t epoch = 0);

  /// The number of rows.
  std::int64_t size() const noexcept { return static_cast<std::int64_t>(size_); }
  /// The row at `position`, which must be in [0, size).
  std::int64_t operator[](std::int64_t position) const noexcept;
  /// Writes the rows at the positions [begin, begin + destination.size()) to the caller's buffer.
  /// Throws Error(invalid_argument) if the positions are not in [0, size).
  void fill(std::int64_t begin, std::span<std::int64_t> destination) const;

  /// Replaces each position in the caller's buffer by its row. Each position must be in [0, size).
  void map(std::span<std::int64_t> positions) const noexcept;

 private:
  void map_block(std::span<std::int64_t> positions) const noexcept;

  std::uint64_t size_ = 0;
  detail::PermutationNetwork network_;
};

}  // namespace tenfold

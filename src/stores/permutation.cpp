#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <string>

#include <tenfold/error.hpp>
#include <tenfold/permutation.hpp>

namespace tenfold {
namespace {

constexpr std::uint64_t kMaxSize = std::uint64_t{1} << 62U;
/// A network over fewer bits has too few keys to reach most of the orders there are.
constexpr unsigned kMinBits = 10;
/// So many positions at a time: what falls outside is gathered and walked on together, and no
/// branch depends on chance.
constexpr std::size_t kBlock = 128;

constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15;

/// SplitMix64 (G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number generators",
/// 2014).
std::uint64_t mix(std::uint64_t value) {
  value = (value ^ (value >> 30U)) * 0xBF58476D1CE4E5B9;
  value = (value ^ (value >> 27U)) * 0x94D049BB133111EB;
  return value ^ (value >> 31U);
}

/// The upper half of the product depends on every bit of the lower.
std::uint64_t round_of(std::uint64_t half, std::uint64_t key) noexcept {
  return ((half ^ key) * kOdd) >> 32U;
}

}  // namespace

Permutation::Permutation(std::int64_t size, std::uint64_t seed, std::uint64_t epoch)
    : size_(static_cast<std::uint64_t>(size)) {
  if (size < 0 || size_ > kMaxSize) {
    throw Error(ErrorCode::invalid_argument,
                "permutation: size: expected 0 to 2^62, found " + std::to_string(size));
  }
  const unsigned bits =
      std::max(kMinBits, static_cast<unsigned>(std::bit_width(size_ == 0 ? 0 : size_ - 1)));
  low_bits_ = bits / 2;
  low_mask_ = (std::uint64_t{1} << low_bits_) - 1;
  high_mask_ = (std::uint64_t{1} << (bits - low_bits_)) - 1;
  std::uint64_t state = mix(seed + kOdd) ^ mix(epoch + 2 * kOdd);
  for (std::uint64_t& key : keys_) key = mix(state += kOdd);
}

inline std::uint64_t Permutation::encrypt(std::uint64_t value) const noexcept {
  std::uint64_t low = value & low_mask_;
  std::uint64_t high = value >> low_bits_;
  for (std::size_t i = 0; i < kRounds; i += 2) {
    low ^= round_of(high, keys_[i]) & low_mask_;
    high ^= round_of(low, keys_[i + 1]) & high_mask_;
  }
  return high << low_bits_ | low;
}

std::int64_t Permutation::operator[](std::int64_t position) const noexcept {
  std::uint64_t value = encrypt(static_cast<std::uint64_t>(position));
  while (value >= size_) value = encrypt(value);
  return static_cast<std::int64_t>(value);
}

void Permutation::fill(std::int64_t begin, std::span<std::int64_t> rows) const {
  if (begin < 0 || static_cast<std::uint64_t>(begin) > size_ ||
      rows.size() > size_ - static_cast<std::uint64_t>(begin)) {
    throw Error(ErrorCode::invalid_argument,
                "permutation: positions: expected a range inside [0, " + std::to_string(size_) +
                    "), found [" + std::to_string(begin) + ", " +
                    std::to_string(static_cast<std::uint64_t>(begin) + rows.size()) + ")");
  }
  std::array<std::size_t, kBlock> outside{};
  for (std::size_t first = 0; first < rows.size(); first += kBlock) {
    const std::size_t count = std::min(kBlock, rows.size() - first);
    const auto block = rows.subspan(first, count);
    std::size_t num_outside = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t value = encrypt(static_cast<std::uint64_t>(begin) + first + i);
      block[i] = static_cast<std::int64_t>(value);
      outside[num_outside] = i;
      num_outside += value >= size_ ? 1 : 0;
    }
    while (num_outside > 0) {
      std::size_t left = 0;
      for (std::size_t k = 0; k < num_outside; ++k) {
        const std::size_t i = outside[k];
        const std::uint64_t value = encrypt(static_cast<std::uint64_t>(block[i]));
        block[i] = static_cast<std::int64_t>(value);
        outside[left] = i;
        left += value >= size_ ? 1 : 0;
      }
      num_outside = left;
    }
  }
}

}  // namespace tenfold

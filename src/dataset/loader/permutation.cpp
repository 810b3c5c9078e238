#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <numeric>
#include <string>

#include <tenfold/error.hpp>
#include <tenfold/permutation.hpp>

#include "base/cpu.hpp"
#include "base/fail.hpp"
#include "dataset/loader/permutation_kernel.hpp"

namespace tenfold {
namespace {

constexpr std::uint64_t kMaxSize = std::uint64_t{1} << 62U;
/// A Feistel network over fewer bits reaches too few permutations.
constexpr unsigned kMinBits = 10;
/// SplitMix64's increment.
constexpr std::uint64_t kKeyStep = 0x9E3779B97F4A7C15;
/// The number of positions that are encrypted at a time. Encrypted values that are out of range are
/// collected and encrypted again together, which avoids unpredictable branches.
constexpr std::size_t kBlock = 512;

/// The output function of SplitMix64 (G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom
/// number generators", 2014).
std::uint64_t mix(std::uint64_t value) {
  value = (value ^ (value >> 30U)) * 0xBF58476D1CE4E5B9;
  value = (value ^ (value >> 27U)) * 0x94D049BB133111EB;
  return value ^ (value >> 31U);
}

PermutationKernel choose_kernel() noexcept {
#ifdef TENFOLD_X86_64_KERNELS
  if (base::vector_instructions().avx2) return encrypt_avx2;
#endif
  return encrypt_baseline;
}

/// Initialised at load time: if a process forks while another thread initialises a static local
/// variable, the child hangs when it uses the variable.
const PermutationKernel kPermutationKernel = choose_kernel();

}  // namespace

Permutation::Permutation(std::int64_t size, std::uint64_t seed, std::uint64_t epoch)
    : size_(static_cast<std::uint64_t>(size)) {
  if (size < 0 || size_ > kMaxSize) {
    throw base::invalid_argument().part("permutation: size").expected("0 to 2^62").found(size);
  }
  const unsigned bits =
      std::max(kMinBits, static_cast<unsigned>(std::bit_width(size_ == 0 ? 0 : size_ - 1)));
  network_.low_bits = bits / 2;
  network_.high_bits = bits - network_.low_bits;
  std::uint64_t state = mix(mix(seed + kKeyStep) + epoch);
  for (std::uint64_t& key : network_.keys) key = mix(state += kKeyStep);
  network_.swap = mix(state + kKeyStep) & 1U;
}

std::int64_t Permutation::operator[](std::int64_t position) const noexcept {
  std::uint64_t value = encrypt(network_, static_cast<std::uint64_t>(position));
  while (value >= size_) value = encrypt(network_, value);
  return static_cast<std::int64_t>(value);
}

void Permutation::fill(std::int64_t begin, std::span<std::int64_t> destination) const {
  if (begin < 0 || static_cast<std::uint64_t>(begin) > size_ ||
      destination.size() > size_ - static_cast<std::uint64_t>(begin)) {
    throw base::invalid_argument()
        .part("permutation: positions")
        .expected("a range inside [0, ", size_, ")")
        .found("[", begin, ", ", static_cast<std::uint64_t>(begin) + destination.size(), ")");
  }
  for (std::size_t first = 0; first < destination.size(); first += kBlock) {
    const auto block = destination.subspan(first, std::min(kBlock, destination.size() - first));
    std::iota(block.begin(), block.end(), begin + static_cast<std::int64_t>(first));
    map_block(block);
  }
}

void Permutation::map(std::span<std::int64_t> positions) const noexcept {
  for (std::size_t first = 0; first < positions.size(); first += kBlock) {
    map_block(positions.subspan(first, std::min(kBlock, positions.size() - first)));
  }
}

void Permutation::map_block(std::span<std::int64_t> positions) const noexcept {
  const PermutationKernel encrypt_all = kPermutationKernel;
  auto* block = reinterpret_cast<std::uint64_t*>(positions.data());
  encrypt_all(network_, block, positions.size());
  std::array<std::uint64_t, kBlock> values;
  std::array<std::size_t, kBlock> places;
  std::size_t count = 0;
  for (std::size_t i = 0; i < positions.size(); ++i) {
    values[count] = block[i];
    places[count] = i;
    count += block[i] >= size_ ? 1 : 0;
  }
  while (count > 0) {
    encrypt_all(network_, values.data(), count);
    std::size_t left = 0;
    for (std::size_t k = 0; k < count; ++k) {
      const std::uint64_t value = values[k];
      block[places[k]] = value;
      values[left] = value;
      places[left] = places[k];
      left += value >= size_ ? 1 : 0;
    }
    count = left;
  }
}

}  // namespace tenfold

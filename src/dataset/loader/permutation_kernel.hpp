#pragma once

#include <cstddef>
#include <cstdint>

#include <tenfold/permutation.hpp>

namespace tenfold {

using detail::PermutationNetwork;

// The odd multipliers of lowbias32 (C. Wellons, "Prospecting for Hash Functions", 2018).
constexpr std::uint32_t kRoundFactor1 = 0x7FEB352D;
constexpr std::uint32_t kRoundFactor2 = 0x846CA68B;

/// Encrypts one value with the network. Always inline, because files that are compiled for other
/// instruction sets include it, and the linker keeps only one copy of a function that is not
/// inlined.
[[gnu::always_inline]] inline std::uint64_t encrypt(const PermutationNetwork& network,
                                                    std::uint64_t value) noexcept {
  // A 32-bit finaliser that XORs half of the key before each multiplication. The result is the
  // upper bits of the last product, because they depend on all bits of its factors.
  const auto round_of = [](std::uint32_t half, std::uint64_t key, unsigned width) {
    std::uint32_t mixed = half ^ static_cast<std::uint32_t>(key);
    mixed = mixed * kRoundFactor1 ^ static_cast<std::uint32_t>(key >> 32U);
    mixed = (mixed ^ (mixed >> 15U)) * kRoundFactor2;
    return mixed >> (32U - width);
  };
  const unsigned low_bits = network.low_bits;
  const unsigned high_bits = network.high_bits;
  auto low = static_cast<std::uint32_t>(value & ((std::uint64_t{1} << low_bits) - 1));
  auto high = static_cast<std::uint32_t>(value >> low_bits);
  for (std::size_t i = 0; i < PermutationNetwork::kRounds; i += 2) {
    low ^= round_of(high, network.keys[i], low_bits);
    high ^= round_of(low, network.keys[i + 1], high_bits);
  }
  const std::uint64_t made = std::uint64_t{high} << low_bits | low;
  return made < 2 ? made ^ network.swap : made;
}

/// Encrypts each of `count` values, which must be below 2^(low_bits + high_bits); compiled for one
/// instruction set. All kernels give the same result.
using PermutationKernel = void (*)(const PermutationNetwork& network, std::uint64_t* values,
                                   std::size_t count) noexcept;

void encrypt_baseline(const PermutationNetwork& network, std::uint64_t* values,
                      std::size_t count) noexcept;
/// x86-64 only.
void encrypt_avx2(const PermutationNetwork& network, std::uint64_t* values,
                  std::size_t count) noexcept;

}  // namespace tenfold

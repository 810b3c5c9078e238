#pragma once

#include <cstddef>
#include <cstdint>

#include <tenfold/permutation.hpp>

namespace tenfold {

/// SplitMix64's increment; odd, with its bits as good as random.
constexpr std::uint64_t kPermutationFactor = 0x9E3779B97F4A7C15;

/// Sends one value through the network. Always inline: it is compiled for several instruction
/// sets, and the linker keeps one of what is not.
[[gnu::always_inline]] inline std::uint64_t encrypt(const PermutationNetwork& network,
                                                    std::uint64_t value) noexcept {
  // The upper half of the product depends on every bit of the lower.
  const auto round_of = [](std::uint64_t half, std::uint64_t key) {
    return ((half ^ key) * kPermutationFactor) >> 32U;
  };
  std::uint64_t low = value & network.low_mask;
  std::uint64_t high = value >> network.low_bits;
  for (std::size_t i = 0; i < PermutationNetwork::kRounds; i += 2) {
    low ^= round_of(high, network.keys[i]) & network.low_mask;
    high ^= round_of(low, network.keys[i + 1]) & network.high_mask;
  }
  return high << network.low_bits | low;
}

/// Sends each of `count` values, which are below 2^62, through the network; compiled for one
/// instruction set. All give the same.
using PermutationKernel = void (*)(const PermutationNetwork& network, std::uint64_t* values,
                                   std::size_t count) noexcept;

void encrypt_baseline(const PermutationNetwork& network, std::uint64_t* values,
                      std::size_t count) noexcept;
/// x86-64 only.
void encrypt_avx2(const PermutationNetwork& network, std::uint64_t* values,
                  std::size_t count) noexcept;

}  // namespace tenfold

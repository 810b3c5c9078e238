#include <immintrin.h>

#include <cstddef>

#include "stores/permutation_kernel.hpp"

namespace tenfold {
namespace {

constexpr std::size_t kLanes = 4;

/// The network, each of its numbers in all lanes. There is no product of 64 bits here, only of 32:
/// of those of (half ^ key) * factor the upper bits of the key matter for a number that is the
/// same for every value.
class Lanes {
 public:
  explicit Lanes(const PermutationNetwork& network) noexcept
      : low_mask_(all(network.low_mask)),
        high_mask_(all(network.high_mask)),
        low_bits_(_mm_cvtsi32_si128(static_cast<int>(network.low_bits))) {
    for (std::size_t i = 0; i < PermutationNetwork::kRounds; ++i) {
      keys_[i] = all(network.keys[i] & kLower);
      added_[i] = all((network.keys[i] >> 32U) * (kPermutationFactor & kLower) & kLower);
    }
  }

  __m256i encrypt(__m256i values) const noexcept {
    __m256i low = _mm256_and_si256(values, low_mask_);
    __m256i high = _mm256_srl_epi64(values, low_bits_);
    for (std::size_t i = 0; i < PermutationNetwork::kRounds; i += 2) {
      low = _mm256_xor_si256(low, _mm256_and_si256(round_of(high, i), low_mask_));
      high = _mm256_xor_si256(high, _mm256_and_si256(round_of(low, i + 1), high_mask_));
    }
    return _mm256_or_si256(_mm256_sll_epi64(high, low_bits_), low);
  }

 private:
  static constexpr std::uint64_t kLower = 0xFFFFFFFF;

  static __m256i all(std::uint64_t value) noexcept {
    return _mm256_set1_epi64x(static_cast<long long>(value));
  }

  /// Right in its lower 32 bits, of which the masks leave 31 at most.
  __m256i round_of(__m256i half, std::size_t i) const noexcept {
    const __m256i mixed = _mm256_xor_si256(half, keys_[i]);
    const __m256i lower = _mm256_mul_epu32(mixed, all(kPermutationFactor & kLower));
    const __m256i upper = _mm256_mul_epu32(mixed, all(kPermutationFactor >> 32U));
    return _mm256_add_epi64(_mm256_srli_epi64(lower, 32), _mm256_add_epi64(upper, added_[i]));
  }

  __m256i low_mask_;
  __m256i high_mask_;
  __m128i low_bits_;
  __m256i keys_[PermutationNetwork::kRounds];
  __m256i added_[PermutationNetwork::kRounds];
};

}  // namespace

void encrypt_avx2(const PermutationNetwork& network, std::uint64_t* values,
                  std::size_t count) noexcept {
  const Lanes lanes(network);
  const auto at = [&](std::size_t i) { return reinterpret_cast<__m256i*>(values + i); };
  std::size_t i = 0;
  // Two at a time: one round waits for the one before.
  for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
    const __m256i first = lanes.encrypt(_mm256_loadu_si256(at(i)));
    const __m256i second = lanes.encrypt(_mm256_loadu_si256(at(i + kLanes)));
    _mm256_storeu_si256(at(i), first);
    _mm256_storeu_si256(at(i + kLanes), second);
  }
  for (; i < count; ++i) values[i] = encrypt(network, values[i]);
}

}  // namespace tenfold

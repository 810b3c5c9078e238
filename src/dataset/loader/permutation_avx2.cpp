#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstddef>

#include "dataset/loader/permutation_kernel.hpp"

namespace tenfold {
namespace {

/// The number of values per step. A half of a value has at most 31 bits, so the low halves of eight
/// values fit in one vector, and their high halves in another.
constexpr std::size_t kLanes = 8;

/// The network, with each constant in all lanes.
class Lanes {
 public:
  explicit Lanes(const PermutationNetwork& network) noexcept
      : low_mask_(_mm256_set1_epi64x((1LL << network.low_bits) - 1)),
        swap_(_mm256_set1_epi64x(static_cast<long long>(network.swap))),
        low_bits_(count_of(network.low_bits)),
        above_low_(count_of(32 - network.low_bits)),
        above_high_(count_of(32 - network.high_bits)) {
    for (std::size_t i = 0; i < PermutationNetwork::kRounds; ++i) {
      keys1_[i] = _mm256_set1_epi32(static_cast<int>(network.keys[i]));
      keys2_[i] = _mm256_set1_epi32(static_cast<int>(network.keys[i] >> 32U));
    }
  }

  void encrypt(std::uint64_t* values) const noexcept {
    auto* at = reinterpret_cast<__m256i*>(values);
    const __m256i even = _mm256_loadu_si256(at);
    const __m256i odd = _mm256_loadu_si256(at + 1);
    __m256i low = interleave(_mm256_and_si256(even, low_mask_), _mm256_and_si256(odd, low_mask_));
    __m256i high = interleave(_mm256_srl_epi64(even, low_bits_), _mm256_srl_epi64(odd, low_bits_));
    for (std::size_t i = 0; i < PermutationNetwork::kRounds; i += 2) {
      low = _mm256_xor_si256(low, _mm256_srl_epi32(mixed(high, i), above_low_));
      high = _mm256_xor_si256(high, _mm256_srl_epi32(mixed(low, i + 1), above_high_));
    }
    const __m256i lower = _mm256_set1_epi64x(0xFFFFFFFF);
    _mm256_storeu_si256(at, joined(_mm256_and_si256(low, lower), _mm256_and_si256(high, lower)));
    _mm256_storeu_si256(at + 1, joined(_mm256_srli_epi64(low, 32), _mm256_srli_epi64(high, 32)));
  }

 private:
  static __m128i count_of(unsigned bits) noexcept {
    return _mm_cvtsi32_si128(static_cast<int>(bits));
  }

  static __m256i interleave(__m256i even, __m256i odd) noexcept {
    return _mm256_or_si256(even, _mm256_slli_epi64(odd, 32));
  }

  __m256i mixed(__m256i half, std::size_t i) const noexcept {
    const auto factor1 = _mm256_set1_epi32(static_cast<int>(kRoundFactor1));
    const auto factor2 = _mm256_set1_epi32(static_cast<int>(kRoundFactor2));
    __m256i mixed = _mm256_mullo_epi32(_mm256_xor_si256(half, keys1_[i]), factor1);
    mixed = _mm256_xor_si256(mixed, keys2_[i]);
    return _mm256_mullo_epi32(_mm256_xor_si256(mixed, _mm256_srli_epi32(mixed, 15)), factor2);
  }

  /// Joins the halves of four values.
  __m256i joined(__m256i low, __m256i high) const noexcept {
    const __m256i made = _mm256_or_si256(_mm256_sll_epi64(high, low_bits_), low);
    const __m256i is_swapped = _mm256_cmpgt_epi64(_mm256_set1_epi64x(2), made);
    return _mm256_xor_si256(made, _mm256_and_si256(is_swapped, swap_));
  }

  __m256i low_mask_;
  __m256i swap_;
  __m128i low_bits_;
  __m128i above_low_;  ///< shift that leaves the upper low_bits bits of a product
  __m128i above_high_;
  __m256i keys1_[PermutationNetwork::kRounds];
  __m256i keys2_[PermutationNetwork::kRounds];
};

}  // namespace

void encrypt_avx2(const PermutationNetwork& network, std::uint64_t* values,
                  std::size_t count) noexcept {
  const Lanes lanes(network);
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) lanes.encrypt(values + i);
  if (i == count) return;
  // Pad the remaining values, which are fewer than kLanes, to kLanes values.
  std::array<std::uint64_t, kLanes> rest{};
  std::copy(values + i, values + count, rest.begin());
  lanes.encrypt(rest.data());
  std::copy_n(rest.begin(), count - i, values + i);
}

}  // namespace tenfold

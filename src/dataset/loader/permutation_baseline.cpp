#include "dataset/loader/permutation_kernel.hpp"

namespace tenfold {

void encrypt_baseline(const PermutationNetwork& network, std::uint64_t* values,
                      std::size_t count) noexcept {
  const PermutationNetwork local = network;  // a local copy, which cannot alias the values
  for (std::size_t i = 0; i < count; ++i) values[i] = encrypt(local, values[i]);
}

}  // namespace tenfold

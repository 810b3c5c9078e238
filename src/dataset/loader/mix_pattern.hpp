#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tenfold {

/// Which source gives the k-th row, repeated for ever: in every prefix each source's part is within
/// one row of its weight's share. The weights are taken as the fractions that people mean by them
/// (0.3 is 3/10); where those have no common denominator up to 65,536, as multiples of 1/65,536.
/// Throws Error(invalid_argument) unless they are finite, not negative, and some are positive.
std::vector<std::uint32_t> mix_pattern(std::span<const double> weights);

}  // namespace tenfold

#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tenfold {

/// The source of the k-th row, as a periodic pattern: in every prefix each source's count is within
/// one row of its weight's share. Weights are interpreted as simple fractions (0.3 is 3/10); if
/// these have no common denominator up to 65,536, as multiples of 1/65,536. Throws
/// Error(invalid_argument) unless all are finite and not negative, and at least one is positive.
std::vector<std::uint32_t> mix_pattern(std::span<const double> weights);

}  // namespace tenfold

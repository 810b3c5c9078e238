#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tenfold {

/// The source of the k-th row, as a periodic pattern. Shares are interpreted as simple fractions
/// (0.3 is 3/10); if these have no common denominator up to 65,536, they are rounded to multiples
/// of 1/65,536. In every prefix, each source's count differs from this share by at most one row.
/// Throws Error(invalid_argument) unless all weights are finite and not negative, and their sum is
/// positive and finite.
std::vector<std::uint32_t> mix_pattern(std::span<const double> weights);

}  // namespace tenfold

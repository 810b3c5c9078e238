#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tenfold {

/// Returns one period of a pattern of sources: row k comes from source pattern[k % pattern.size()].
/// The share of a source is its weight divided by the sum of all weights. Shares are interpreted as
/// simple fractions (0.3 is 3/10); if these have no common denominator up to 65,536, they are
/// rounded to multiples of 1/65,536. Among the first n rows, for every n, the number of rows of a
/// source differs from n times its (rounded) share by at most one.
/// Throws Error(invalid_argument) unless all weights are finite and not negative, and their sum is
/// positive and finite.
std::vector<std::uint32_t> mix_pattern(std::span<const double> weights);

}  // namespace tenfold

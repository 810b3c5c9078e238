#include "dataset/loader/mix_pattern.hpp"

#include <cmath>
#include <numeric>

#include <tenfold/error.hpp>
#include <tenfold/value.hpp>

#include "base/fail.hpp"

namespace tenfold {
namespace {

constexpr std::int64_t kMaxPeriod = 65'536;

/// The denominator of the simplest fraction that equals `value` up to rounding, or 0 if the
/// denominator exceeds kMaxPeriod. Computed by continued fractions.
std::int64_t denominator_of(double value) {
  std::int64_t before = 0;
  std::int64_t denominator = 1;
  double rest = value;
  while (std::abs(value * static_cast<double>(denominator) -
                  std::round(value * static_cast<double>(denominator))) > 1e-9) {
    rest = 1 / (rest - std::floor(rest));
    const double next =
        std::floor(rest) * static_cast<double>(denominator) + static_cast<double>(before);
    if (!(next <= static_cast<double>(kMaxPeriod))) return 0;
    before = denominator;
    denominator = static_cast<std::int64_t>(next);
  }
  return denominator;
}

std::int64_t period_of(std::span<const double> shares) {
  std::int64_t period = 1;
  for (const double share : shares) {
    const std::int64_t denominator = denominator_of(share);
    if (denominator == 0) return kMaxPeriod;
    period = std::lcm(period, denominator);
    if (period > kMaxPeriod) return kMaxPeriod;
  }
  return period;
}

/// Number of rows of each source in a period; the sum is the period.
std::vector<std::int64_t> counts_of(std::span<const double> shares, std::int64_t period) {
  std::vector<std::int64_t> counts;
  double sum = 0;
  std::int64_t given = 0;
  for (const double share : shares) {
    sum += share;
    const std::int64_t until = std::llround(sum * static_cast<double>(period));
    counts.push_back(until - given);
    given = until;
  }
  return counts;
}

}  // namespace

std::vector<std::uint32_t> mix_pattern(std::span<const double> weights) {
  double sum = 0;
  for (const double weight : weights) {
    if (!(weight >= 0) || !std::isfinite(weight)) {
      throw base::invalid_argument()
          .part("mix: weights")
          .expected("finite numbers of 0 or more")
          .found(to_json(Value(weight)));
    }
    sum += weight;
  }
  if (!(sum > 0) || !std::isfinite(sum)) {
    throw base::invalid_argument()
        .part("mix: weights")
        .expected("a positive, finite sum")
        .found(to_json(Value(sum)));
  }
  std::vector<double> shares;
  for (const double weight : weights) shares.push_back(weight / sum);
  const std::int64_t period = period_of(shares);
  const std::vector<std::int64_t> counts = counts_of(shares, period);

  // Among the sources that have provided less than their share of k + 1 rows, choose the one with
  // the earliest deadline (R. Tijdeman, "The chairman assignment problem", 1980).
  std::vector<std::uint32_t> pattern;
  std::vector<std::int64_t> given(counts.size());
  for (std::int64_t k = 0; k < period; ++k) {
    std::size_t best = counts.size();
    for (std::size_t i = 0; i < counts.size(); ++i) {
      if (given[i] * period >= counts[i] * (k + 1)) continue;
      // The deadline of the source's next row is the fraction (given + 1) / count of the period.
      if (best == counts.size() || (given[i] + 1) * counts[best] < (given[best] + 1) * counts[i]) {
        best = i;
      }
    }
    ++given[best];
    pattern.push_back(static_cast<std::uint32_t>(best));
  }
  return pattern;
}

}  // namespace tenfold

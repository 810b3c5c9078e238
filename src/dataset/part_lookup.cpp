#include "dataset/part_lookup.hpp"

#include <algorithm>
#include <cstddef>

namespace tenfold {
namespace {

/// Up to this number of parts, a comparison with every part is faster than a binary search, whose
/// branches are unpredictable.
constexpr std::size_t kFewParts = 8;

}  // namespace

std::vector<std::uint32_t> part_of_each(std::span<const std::int64_t> begins,
                                        std::span<const std::int64_t> numbers) {
  std::vector<std::uint32_t> parts(numbers.size());
  if (begins.size() <= kFewParts) {
    for (const std::int64_t begin : begins.subspan(1)) {
      for (std::size_t i = 0; i < numbers.size(); ++i) parts[i] += numbers[i] >= begin ? 1U : 0U;
    }
    return parts;
  }
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto after = std::upper_bound(begins.begin(), begins.end(), numbers[i]);
    parts[i] = static_cast<std::uint32_t>(after - begins.begin() - 1);
  }
  return parts;
}

}  // namespace tenfold

#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tenfold {

/// For each number, the index of the part that contains it: the last part that begins at or before
/// it. `begins` is ascending, and its first element is not greater than any number.
std::vector<std::uint32_t> part_of_each(std::span<const std::int64_t> begins,
                                        std::span<const std::int64_t> numbers);

}  // namespace tenfold

#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tenfold {

/// Returns for each number the index of the part that contains it: the last part that begins at or
/// before the number. `begins` must be ascending, and no number may be less than begins[0].
std::vector<std::uint32_t> part_of_each(std::span<const std::int64_t> begins,
                                        std::span<const std::int64_t> numbers);

}  // namespace tenfold

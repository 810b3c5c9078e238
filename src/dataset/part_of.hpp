#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tenfold {

/// Which part each number lies in, of parts one after the other that begin at `begins` (rising, the
/// first at or before every number): the last one that begins at or before it.
std::vector<std::uint32_t> part_of_each(std::span<const std::int64_t> begins,
                                        std::span<const std::int64_t> numbers);

}  // namespace tenfold

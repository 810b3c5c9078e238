#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tenfold::os {

/// Prefetches the mapped pages of all ranges without waiting, so that the device gets many requests
/// at a time. A hint.
void will_need(std::span<const std::span<const std::byte>> ranges) noexcept;

/// Sets random access for the mapped pages of `bytes` (no readahead), or restores the default. A
/// hint.
void expect_random_access(std::span<const std::byte> bytes, bool random) noexcept;

/// Number of major page faults of this thread so far.
std::uint64_t num_pages_waited_for() noexcept;

}  // namespace tenfold::os

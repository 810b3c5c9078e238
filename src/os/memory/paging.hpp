#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tenfold::os {

/// Asks for the mapped pages of these ranges to be read, all at once, and does not wait: the
/// device gets many requests at a time. A hint.
void will_need(std::span<const std::span<const std::byte>> ranges) noexcept;

/// Says that the mapped pages of `bytes` are touched in no order (so that nothing is read beside
/// them), or again in the usual one. A hint.
void expect_random_access(std::span<const std::byte> bytes, bool random) noexcept;

/// How often this thread has touched a page so far that had to come from a device first.
std::uint64_t num_pages_waited_for() noexcept;

}  // namespace tenfold::os

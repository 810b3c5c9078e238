#pragma once

#include <cstdint>
#include <string>

namespace tenfold::os {

/// Bytes that this process may still write on the file system of `descriptor`: reserved blocks
/// count for root alone.
struct FreeSpace {
  std::uint64_t free_bytes = 0;
  std::uint64_t free_files = 0;
};

/// Zeros if the file system does not report its space.
FreeSpace free_space(int descriptor) noexcept;

/// Writing less than this takes less time than a user notices, and is not checked.
inline constexpr std::uint64_t kUncheckedBytes = std::uint64_t{64} << 20;

/// Throws Error(io) (ENOSPC), naming `display`, if `needed_bytes` that are about to be written
/// cannot fit on the file system of `descriptor`, rather than fill a disk for minutes first. It
/// refuses nothing that would fit: up to kUncheckedBytes are not even checked, and a file system
/// that compresses, or whose free space lags behind, is refused only what no compression makes
/// small enough.
void require_free_space(int descriptor, const std::string& display, std::uint64_t needed_bytes);

}  // namespace tenfold::os

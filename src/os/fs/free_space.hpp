#pragma once

#include <cstdint>
#include <string>

namespace tenfold::os {

/// Bytes that this process can still write to the file system of `descriptor`. Only root may use
/// reserved blocks.
struct FreeSpace {
  std::uint64_t free_bytes = 0;
  std::uint64_t free_files = 0;
};

/// Zeros if the file system does not report its free space.
FreeSpace free_space(int descriptor) noexcept;

/// Smaller writes are not checked: they take less time than a user notices.
inline constexpr std::uint64_t kUncheckedBytes = std::uint64_t{64} << 20;

/// Throws Error(io) (ENOSPC), naming `display`, if `needed_bytes` cannot fit on the file system of
/// `descriptor`. Otherwise a save could fill a disk for minutes before it fails. Never refuses a
/// write that would fit: up to kUncheckedBytes are not checked, and on file systems that compress
/// or report free space late, a write is refused only if no compression could make it fit.
void require_free_space(int descriptor, const std::string& display, std::uint64_t needed_bytes);

}  // namespace tenfold::os

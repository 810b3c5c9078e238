#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tenfold::os {

/// Bytes and files that can still be added to a file system, without the blocks that are reserved
/// for root.
struct FreeSpace {
  std::uint64_t free_bytes = 0;
  std::optional<std::uint64_t> free_files;  ///< empty if the file system reports no limit
};

/// The free space of the file system of `descriptor`. If it is unknown, free_bytes is 0 and
/// free_files is empty.
FreeSpace free_space(int descriptor) noexcept;

/// Writes up to this size are not checked, because without space they fail within a moment anyway.
inline constexpr std::uint64_t kUncheckedBytes = std::uint64_t{64} << 20;

/// Throws Error(io) (ENOSPC), naming `display`, if `needed_bytes` cannot fit on the file system of
/// `descriptor`. Without this check, a save could fill a disk for minutes before it fails.
///
/// The check must not refuse a write that fits, so its limit depends on the file system. On ext2 to
/// ext4 and tmpfs, it is the free space. On XFS, which reports some free space late, it is the size
/// of the file system. On others, which may compress, it is 64 times their size. A file system that
/// reports no size has no limit. A write of up to kUncheckedBytes is not checked.
void require_free_space(int descriptor, const std::string& display, std::uint64_t needed_bytes);

}  // namespace tenfold::os

#include "os/fs/free_space.hpp"

#include <linux/magic.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <limits>

#include <tenfold/error.hpp>

#include "base/checked.hpp"
#include "base/fail.hpp"
#include "os/system.hpp"
#include "os/thread/background.hpp"

namespace tenfold::os {
namespace {

/// A generous bound of a file system's compression ratio: btrfs compresses 128 KiB to 4 KiB at
/// best, which is a ratio of 32.
constexpr std::uint64_t kMaxCompression = 64;
constexpr std::uint64_t kMaxBytes = std::numeric_limits<std::uint64_t>::max();

/// Upper bound of the bytes that can be written; kMaxBytes if the file system does not report its
/// size.
std::uint64_t writable_bytes(int descriptor) noexcept {
  struct statfs system{};
  if (retry_interrupted([&] { return ::fstatfs(descriptor, &system); }) != 0) return kMaxBytes;
  const auto block_bytes = static_cast<std::uint64_t>(system.f_frsize);
  const auto total_bytes =
      base::checked_mul(std::uint64_t{system.f_blocks}, block_bytes).value_or(kMaxBytes);
  // A tmpfs without a limit and some FUSE file systems report size 0.
  if (total_bytes == 0) return kMaxBytes;
  switch (static_cast<std::uint32_t>(system.f_type)) {
    case EXT4_SUPER_MAGIC:  // the same magic number as ext2 and ext3
    case TMPFS_MAGIC: {
      // root may be allowed to use the reserved blocks.
      const std::uint64_t blocks = ::geteuid() == 0 ? system.f_bfree : system.f_bavail;
      return blocks * block_bytes;
    }
    case XFS_SUPER_MAGIC:  // frees removed files and preallocated blocks later, or when it is full
      return total_bytes;
    default:
      return base::checked_mul(total_bytes, kMaxCompression).value_or(kMaxBytes);
  }
}

}  // namespace

FreeSpace free_space(int descriptor) noexcept {
  struct statvfs space{};
  if (descriptor < 0 || ::fstatvfs(descriptor, &space) != 0) return {};
  // btrfs and FAT, for example, report 0 files in total.
  std::optional<std::uint64_t> free_files;
  if (space.f_files != 0) free_files = space.f_favail;
  return {space.f_bavail * space.f_frsize, free_files};
}

void require_free_space(int descriptor, const std::string& display, std::uint64_t needed_bytes) {
  if (needed_bytes <= kUncheckedBytes || needed_bytes <= writable_bytes(descriptor)) return;
  // Replaced files may occupy space until a background thread has closed them.
  await_background_closes();
  const std::uint64_t writable = writable_bytes(descriptor);
  if (needed_bytes <= writable) return;
  const std::string needed =
      needed_bytes == kMaxBytes ? "more than 2^64" : std::to_string(needed_bytes);
  throw Error::io(ENOSPC, display)
      .problem("no space left on device")
      .expected(needed, " bytes free")
      .found(free_space(descriptor).free_bytes);
}

}  // namespace tenfold::os

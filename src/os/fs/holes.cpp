#include "os/fs/holes.hpp"

#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>

#include "os/system.hpp"

namespace tenfold::os {
namespace {

constexpr std::uint64_t kMaxSeekOffset = std::numeric_limits<std::int64_t>::max();

/// True for file systems on which SEEK_DATA also considers dirty pages of the page cache. Other
/// file systems, such as FUSE, may report only what is on their device.
bool has_seek_hole(const File& file) {
  struct statfs system{};
  if (retry_interrupted([&] { return ::fstatfs(file.fd(), &system); }) != 0) return false;
  constexpr std::array<std::uint32_t, 4> kKnown = {EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC,
                                                   BTRFS_SUPER_MAGIC, TMPFS_MAGIC};
  return std::ranges::find(kKnown, static_cast<std::uint32_t>(system.f_type)) != kKnown.end();
}

}  // namespace

std::uint64_t next_data(const File& file, std::uint64_t offset_bytes) {
  if (offset_bytes > kMaxSeekOffset || !has_seek_hole(file)) return offset_bytes;
  const off_t found = ::lseek(file.fd(), static_cast<off_t>(offset_bytes), SEEK_DATA);
  if (found >= 0) return static_cast<std::uint64_t>(found);
  // ENXIO: the offset is in the last hole, or past the end.
  return errno == ENXIO ? std::max(offset_bytes, file.size_bytes()) : offset_bytes;
}

std::uint64_t next_hole(const File& file, std::uint64_t offset_bytes) {
  if (offset_bytes <= kMaxSeekOffset && has_seek_hole(file)) {
    const off_t found = ::lseek(file.fd(), static_cast<off_t>(offset_bytes), SEEK_HOLE);
    if (found >= 0) return static_cast<std::uint64_t>(found);
  }
  return std::max(offset_bytes, file.size_bytes());
}

}  // namespace tenfold::os

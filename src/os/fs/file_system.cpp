#include "os/fs/file_system.hpp"

#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <cstdint>

namespace tenfold::os {
namespace {

/// A network or FUSE file system.
struct Remote {
  std::uint32_t magic = 0;  ///< f_type of statfs(2); 0: no remote file system
  bool loses_shared_pages = false;
};

constexpr auto kRemotes = std::to_array<Remote>({
    {0x00006969, true},   // NFS
    {0x0000517B, true},   // SMB
    {0xFF534D42, true},   // CIFS
    {0xFE534D42, true},   // SMB2
    {0x65735546, true},   // FUSE
    {0x01021997, true},   // 9p
    {0x00C36400, false},  // Ceph
    {0x0BD00BD0, false},  // Lustre
    {0x47504653, false},  // GPFS
    {0x5346414F, false},  // AFS
});

Remote remote_of(const File& file) noexcept {
  struct statfs status{};
  if (::fstatfs(file.fd(), &status) != 0) return {};
  const auto found =
      std::ranges::find(kRemotes, static_cast<std::uint32_t>(status.f_type), &Remote::magic);
  return found == kRemotes.end() ? Remote() : *found;
}

}  // namespace

bool is_remote(const File& file) noexcept { return remote_of(file).magic != 0; }

bool loses_shared_pages(const File& file) noexcept { return remote_of(file).loses_shared_pages; }

}  // namespace tenfold::os
